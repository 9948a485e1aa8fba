"""What a model is called in a configuration: `embedded:NAME`, `packaged:NAME`, a Hugging Face folder, or a hub name."""

import difflib
from collections.abc import Callable
from pathlib import Path

from complementary_rl.errors import UserError
from complementary_rl.models import embedded, packaged

_SOURCES: dict[str, tuple[Callable[[], list[str]], Callable[[str], Path]]] = {
    embedded.PREFIX: (embedded.names, embedded.resolve),
    packaged.PREFIX: (packaged.names, packaged.resolve),
}


def known_models() -> list[str]:
    """Every name with a prefix."""
    return [prefix + name for prefix, (names, _) in _SOURCES.items() for name in names()]


def public_name(path: str) -> str:
    """What a model is called where others read it: a folder by its last part, since where it was on this machine is nobody's business."""
    folder = Path(path).expanduser()
    return folder.name if path not in known_models() and folder.is_dir() else path


def resolve(path: str) -> str:
    """The folder a model is in, or a hub name as it is. What looks like a folder must be one.

    Raises UserError for a name that is none, or a folder without a model.
    """
    for prefix, (names, find) in _SOURCES.items():
        name = path.removeprefix(prefix)
        if name != path:
            if name in names():
                return str(find(name))
            near = difflib.get_close_matches(path, known_models(), n=1, cutoff=0.0)
            raise UserError(f"there is no model {path!r}; did you mean {near[0]}?")
    folder = Path(path).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UserError(f"{path} has no config.json; model.path must be a folder written by save_pretrained")
        return str(folder)
    if folder.exists() or folder.is_absolute() or path.startswith((".", "~")) or path.count("/") > 1:
        raise UserError(
            f"model folder {path} does not exist; give a folder, a hub name such as Qwen/Qwen3-0.6B, or one of {', '.join(known_models())}"
        )
    return path
