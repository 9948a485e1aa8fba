"""Tensors as NumPy arrays, which Ray's object store shares between the processes of a machine without copying."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

Arrays = dict[str, tuple[str, Any]]
"""Name → (torch dtype, ndarray of its bits)."""

_BITS = {torch.bfloat16: torch.int16}


def to_arrays(tensors: Mapping[str, Tensor]) -> Arrays:
    """The values of `tensors`, as views where they are on the CPU."""
    arrays: Arrays = {}
    for name, tensor in tensors.items():
        values = tensor.detach().cpu().contiguous()
        arrays[name] = (str(values.dtype).removeprefix("torch."), values.view(_BITS.get(values.dtype, values.dtype)).numpy())
    return arrays


def to_tensors(arrays: Arrays) -> dict[str, Tensor]:
    """Inverse of `to_arrays`, on the CPU, with memory of their own."""
    return {name: torch.tensor(array).view(getattr(torch, dtype)) for name, (dtype, array) in arrays.items()}
