"""The shipped run configurations, by name: `crl train dark-rooms`."""

from pathlib import Path

from complementary_rl.errors import ConfigError


def shipped() -> dict[str, Path]:
    """Shipped configuration files by name, such as ``quickstart`` or ``paper/alfworld``."""
    root = Path(__file__).parent
    return {path.relative_to(root).with_suffix("").as_posix(): path for path in sorted(root.rglob("*.toml"))}


def find_config(name_or_path: str) -> Path:
    """A shipped name or a path to a TOML file. Raises ConfigError when it is neither."""
    path = Path(name_or_path)
    if path.exists():
        return path
    names = shipped()
    if name_or_path in names:
        return names[name_or_path]
    raise ConfigError(f"{name_or_path}: no such file, and no shipped config of that name; shipped: {', '.join(names)}")
