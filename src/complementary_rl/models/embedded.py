"""The two embedded decoders: a few MB each, taught by imitation only; made by `scripts/make_embedded_models.py`."""

import difflib
from pathlib import Path

from complementary_rl.errors import UserError

PREFIX = "embedded:"
_ASSETS = Path(__file__).parent / "assets"


def names() -> list[str]:
    """The models that ship, without the prefix."""
    return sorted(path.name for path in _ASSETS.iterdir() if path.is_dir())


def resolve(path: str) -> Path:
    """The folder of ``embedded:<name>``. Raises UserError for an unknown name, with the nearest."""
    name = path.removeprefix(PREFIX)
    if name in names():
        return _ASSETS / name
    near = difflib.get_close_matches(name, names(), n=1, cutoff=0.0)
    raise UserError(f"there is no embedded model {name!r}; did you mean {PREFIX}{near[0]}?")
