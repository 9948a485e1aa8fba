"""The parameters of a model over several ranks: FSDP2 (torch.distributed.fsdp.fully_shard).

Each rank keeps 1/N of every parameter, gradient and moment. A layer's parameters are gathered when it computes and dropped behind it;
gradients are *summed* over ranks, since the terms of a loss are sums over samples (see `TrainingSample.weight`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from complementary_rl.engines.local.microbatch import split_samples, trained_length
from complementary_rl.engines.local.ranks import Sums
from complementary_rl.engines.protocol import TrainingSample


class Sharded:
    """Implements `Ranks` for the processes of `mesh`, which has one dimension."""

    def __init__(self, mesh: DeviceMesh) -> None:
        self._mesh = mesh
        self._rank, self._size = mesh.get_local_rank(), mesh.size()

    def prepare(self, scorer: Any, layers: Sequence[Any]) -> None:
        """See `Ranks.prepare`."""
        for module in (*layers, scorer):
            # Kept parameters would be stale after a step that no backward pass came before.
            fully_shard(module, mesh=self._mesh, reshard_after_forward=True)
        for module in scorer.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)  # gloo knows no other

    def share(self, samples: Sequence[TrainingSample], max_tokens: int) -> list[list[int]]:
        """See `Ranks.share`. Samples are dealt by length, so that ranks get about as many tokens."""
        trained = [index for index, sample in enumerate(samples) if trained_length(sample)]
        dealt = sorted(trained, key=lambda index: trained_length(samples[index]), reverse=True)
        hands = [sorted(dealt[rank :: self._size]) for rank in range(self._size)]
        batches = [[[hand[i] for i in batch] for batch in split_samples([samples[i] for i in hand], max_tokens)] for hand in hands]
        own = batches[self._rank]
        return own + [[]] * (max(map(len, batches)) - len(own))

    def total(self, sums: Sums) -> Sums:
        """See `Ranks.total`."""
        parts: list[Any] = [None] * self._size
        dist.all_gather_object(parts, sums)
        return Sums.of(parts)

    def whole(self, tensor: Tensor) -> Tensor:
        """See `Ranks.whole`."""
        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def own_part(tensor: Tensor) -> Tensor:
    """What this rank keeps of `tensor`."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def sharded_like(parameter: Tensor, part: Tensor) -> Tensor:
    """`part` as this rank's part of a tensor that is sharded as `parameter` is."""
    assert isinstance(parameter, DTensor)
    local = part.to(parameter.device)
    return DTensor.from_local(
        local, parameter.device_mesh, parameter.placements, run_check=False, shape=parameter.shape, stride=parameter.stride()
    )


def sharded_from(parameter: Tensor, whole: Tensor) -> Tensor:
    """`whole`, which every rank has, sharded as `parameter` if it has its shape; else as it is."""
    assert isinstance(parameter, DTensor)
    if whole.shape != parameter.shape:
        return whole
    return distribute_tensor(whole.to(parameter.device), parameter.device_mesh, parameter.placements, src_data_rank=None)


def blank_moments(parameters: Sequence[Tensor], shapes: Mapping[str, torch.Size]) -> dict[str, Tensor]:
    """Tensors of an optimiser's state called ``<parameter index>.<key>``, to be filled: sharded where they have their parameter's shape."""
    blank = {}
    for name, shape in shapes.items():
        parameter = parameters[int(name.split(".", 1)[0])]
        blank[name] = torch.zeros_like(parameter.detach()) if shape == parameter.shape else torch.zeros(shape)
    return blank
