"""What `save` writes: parameters, AdamW state and counters as safetensors and JSON, complete or not at all.

DIRECTORY/engine.json · weights.safetensors · optimizer.safetensors · sampler.safetensors (only between an update and its publish)

In place of the weights' and the optimiser's file several ranks leave a folder, `shards`: see `engines.shards`. Both are read everywhere.
"""

import errno
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.optim import Optimizer

from complementary_rl.durability import sync_path
from complementary_rl.engines.shards import is_sharded, read_whole
from complementary_rl.errors import CheckpointError

FORMAT = 2
_STATE = "engine.json"


def write_directory(directory: Path, fill: Callable[[Path], None]) -> None:
    """Have `fill` write into a new directory beside `directory`, flush it to disk and put it in place with a rename.

    Raises OSError when the disk is full or not writable; what stood at `directory` is then untouched.
    """
    partial = directory.with_name(f".{directory.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        fill(partial)
        for path in [*(path for path in partial.rglob("*") if path.is_file()), partial]:
            sync_path(path)
    except SafetensorError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise OSError(errno.EIO, f"writing {directory} failed: {error}") from error
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    if directory.exists():
        old = directory.with_name(f".{directory.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        directory.rename(old)
        partial.rename(directory)
        shutil.rmtree(old)
    else:
        partial.rename(directory)
    sync_path(directory.parent)


def write_state(directory: Path, state: Mapping[str, Any], **tensors: Mapping[str, Tensor]) -> None:
    """Write `state` as JSON and each group of tensors as ``<group>.safetensors``."""
    for group, named in tensors.items():
        save_file({name: tensor.detach().contiguous() for name, tensor in named.items()}, directory / f"{group}.safetensors")
    (directory / _STATE).write_text(json.dumps({"format": FORMAT, **state}, indent=2) + "\n", encoding="utf-8")


def read_state(directory: Path, *, model: str) -> dict[str, Any]:
    """The JSON state. Raises CheckpointError when it is missing, of another format, or of a model other than `model`."""
    try:
        state: dict[str, Any] = json.loads((directory / _STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{directory} holds no engine checkpoint that can be read ({error})") from error
    if state.get("format") != FORMAT:
        raise CheckpointError(f"{directory} has checkpoint format {state.get('format')}, this version reads {FORMAT}")
    if state.get("model") != model:
        raise CheckpointError(
            f"{directory} belongs to another model: {state.get('model')}, not {model}; use the configuration it was made with"
        )
    return state


def read_tensors(directory: Path, group: str, like: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """One group of tensors, checked against the names and shapes of `like` if given. Raises CheckpointError."""
    path = directory / f"{group}.safetensors"
    try:
        tensors = read_whole(directory, group) if is_sharded(directory) and not path.exists() else load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}); the checkpoint is incomplete, go back to an earlier one"
        ) from error
    if like is not None and {n: t.shape for n, t in tensors.items()} != {n: t.shape for n, t in like.items()}:
        raise CheckpointError(f"{path} has other parameters than the model; use the configuration it was made with")
    return tensors


def optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """The optimiser's state as flat names ``<parameter index>.<key>``."""
    state = optimizer.state_dict()["state"]
    return {f"{index}.{key}": tensor for index, named in state.items() for key, tensor in named.items()}


def restore_optimizer(optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Inverse of `optimizer_tensors`."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        index, key = name.split(".", 1)
        state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


@torch.no_grad()
def copy_parameters(targets: Mapping[str, Tensor], sources: Mapping[str, Tensor]) -> None:
    """Copy in place by name, casting to the targets' dtype and device."""
    for name, target in targets.items():
        target.copy_(sources[name])
