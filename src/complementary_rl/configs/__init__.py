"""The shipped run configurations, by name: `crl train dark-rooms`."""

from pathlib import Path

from complementary_rl.errors import ConfigError


def shipped() -> dict[str, Path]:
    """Shipped configuration files by name."""
    return {path.stem: path for path in sorted(Path(__file__).parent.glob("*.toml"))}


def find_config(name_or_path: str) -> Path:
    """A shipped name or a path to a TOML file. Raises ConfigError when it is neither."""
    path = Path(name_or_path)
    if path.exists():
        return path
    names = shipped()
    if name_or_path in names:
        return names[name_or_path]
    raise ConfigError(f"{name_or_path}: no such file, and no shipped config of that name; shipped: {', '.join(names)}")
