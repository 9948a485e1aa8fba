"""The two embedded decoders: a few MB each, taught by imitation only; made by `scripts/make_embedded_models.py`."""

from pathlib import Path

PREFIX = "embedded:"
_ASSETS = Path(__file__).parent / "assets"


def names() -> list[str]:
    """The models that ship, without the prefix."""
    return sorted(path.name for path in _ASSETS.iterdir() if path.is_dir())


def resolve(name: str) -> Path:
    """The folder of ``embedded:<name>``, given without prefix."""
    return _ASSETS / name
