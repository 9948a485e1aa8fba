"""Weights and optimiser of several ranks as one folder, by torch.distributed.checkpoint: each rank writes its part, any number read it.

DIRECTORY/shards: groups of tensors, `weights` by name and `optimizer` as ``<parameter index>.<key>``
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_FOLDER = "shards"


def is_sharded(directory: Path) -> bool:
    """Whether an engine's checkpoint was written by several ranks."""
    return (directory / _FOLDER).is_dir()


def write_shards(directory: Path, **groups: Mapping[str, Tensor]) -> None:
    """Write this rank's part of every group; all ranks call it. Raises OSError when the disk refuses."""
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.state_dict_saver import save

    try:
        save(_flat(groups), checkpoint_id=directory / _FOLDER)
    except CheckpointException as error:
        raise _disk_error(error) from error


def shapes(directory: Path) -> dict[str, dict[str, torch.Size]]:
    """Group → name → shape of the whole tensor. Raises OSError when the folder cannot be read."""
    found: dict[str, dict[str, torch.Size]] = {}
    for key, stored in _stored(directory).items():
        group, _, name = key.partition("/")
        found.setdefault(group, {})[name] = stored.size
    return found


def read_shards(directory: Path, **groups: Mapping[str, Tensor]) -> None:
    """Fill this rank's part of the tensors in every group; all ranks call it. Raises OSError when the folder cannot be read."""
    _load(directory, _flat(groups))


def read_whole(directory: Path, group: str) -> dict[str, Tensor]:
    """One group with whole tensors, in a process of its own. Raises OSError when the folder cannot be read."""
    prefix = f"{group}/"
    whole = {k: torch.empty(v.size, dtype=v.properties.dtype) for k, v in _stored(directory).items() if k.startswith(prefix)}
    _load(directory, whole, alone=True)
    return {key.removeprefix(prefix): tensor for key, tensor in whole.items()}


def _flat(groups: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {f"{group}/{name}": tensor for group, named in groups.items() for name, tensor in named.items()}


def _load(directory: Path, tensors: dict[str, Any], *, alone: bool = False) -> None:
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.state_dict_loader import load

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # which is what `alone` asks for
            load(tensors, checkpoint_id=directory / _FOLDER, no_dist=alone)
    except CheckpointException as error:
        raise _disk_error(error) from error


def _stored(directory: Path) -> dict[str, Any]:
    from torch.distributed.checkpoint.filesystem import FileSystemReader

    try:
        return dict(FileSystemReader(directory / _FOLDER).read_metadata().state_dict_metadata)
    except Exception as error:  # the index is a pickle: what a damaged one raises can be anything
        raise OSError(f"the index of its shards is damaged: {error}") from error


def _disk_error(error: BaseException) -> OSError:
    """One rank's own OSError if there is one: its message says what is wrong with the disk."""
    causes = [cause for cause, _ in getattr(error, "failures", {}).values()]
    return next((cause for cause in causes if isinstance(cause, OSError)), OSError(str(error)))
