"""One process of a trainer group: the local `Trainer` over its part of the parameters."""

import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import ray
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

from complementary_rl.config import ModelConfig
from complementary_rl.engines.local.checkpoint import copy_parameters, optimizer_tensors, read_tensors, restore_optimizer
from complementary_rl.engines.local.copies import describe, frozen_copy, trained_parameters
from complementary_rl.engines.local.decoder import Decoder
from complementary_rl.engines.local.loading import check_memory, model_need, read_model
from complementary_rl.engines.local.trainer import Trainer
from complementary_rl.engines.protocol import LossTerm, OptimParams, TrainingSample
from complementary_rl.engines.ray.arrays import Arrays, to_arrays, to_tensors
from complementary_rl.engines.ray.calls import where_am_i
from complementary_rl.engines.ray.sharding import Sharded, blank_moments, own_part, sharded_from, sharded_like
from complementary_rl.engines.shards import is_sharded, read_shards, shapes, write_shards
from complementary_rl.errors import CheckpointError
from complementary_rl.models.names import resolve
from complementary_rl.types import Metrics


@dataclass(frozen=True, slots=True)
class Part:
    """What one rank holds after update `step`: enough for another process to take its place."""

    step: int
    weights: Arrays
    optimizer: Arrays


class TrainerRank:
    """A Ray actor; rank `rank` of `size`. All ranks of a group are given the same calls in the same order."""

    def __init__(self, name: str, model: ModelConfig, *, max_context: int, keep_reference: bool, rank: int, size: int) -> None:
        self._name = name
        self._model = model
        self._max_context = max_context
        self._keep_reference = keep_reference
        self._rank, self._size = rank, size
        self._step = 0

    def ping(self) -> tuple[str, int]:
        """Node and process, as a sign of life."""
        return where_am_i()

    def meeting_place(self) -> str:
        """An address that the ranks can meet at; asked of rank 0."""
        with socket.socket() as free:
            free.bind(("", 0))
            return f"tcp://{ray.util.get_node_ip_address()}:{free.getsockname()[1]}"

    def start(self, meeting_place: str, timeout: float) -> str:
        """Join the group and load the model; returns what `describe` says of it. Raises UserError as `load_model`."""
        device = worker_device()
        path = resolve(self._model.path)
        need = model_need(path, self._model, keep_reference=self._keep_reference)
        # Each rank reads all of the weights before it lets go of what is not its part.
        check_memory(path, replace(need, held=max(need.held // self._size, need.sampling)), device)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            init_method=meeting_place,
            rank=self._rank,
            world_size=self._size,
            timeout=timedelta(seconds=timeout),
        )
        model = read_model(path, self._model, device)
        dtype = getattr(torch, self._model.dtype)
        reference = Decoder(frozen_copy(model, dtype)) if self._keep_reference else None
        self._trainer = Trainer(
            Decoder(model),
            compute_dtype=dtype,
            reference=reference,
            max_context=self._max_context,
            gradient_checkpointing=self._model.gradient_checkpointing,
            ranks=Sharded(init_device_mesh(device.type, (self._size,))),
        )
        return describe(self._name, model)

    def update(self, step: int, work: tuple[Sequence[LossTerm], OptimParams], keep: bool) -> tuple[Metrics, Part | None]:
        """`Trainer.update`, the `step`-th of the run, and with `keep` the part that it leads to."""
        if step != self._step + 1:
            raise AssertionError(f"{self._name} rank {self._rank} is asked for update {step} after {self._step}")
        terms, optim = work
        metrics = self._trainer.update(terms, optim)
        self._step = step
        return metrics, self._part() if keep else None

    def logprobs(self, samples: Sequence[TrainingSample]) -> list[Tensor]:
        """`Trainer.logprobs`: of each sample on one rank, 0 on the others."""
        return self._trainer.logprobs(samples)

    def part(self) -> tuple[int, Part]:
        """The update that this rank stands at, and what it holds."""
        return self._step, self._part()

    def put_back(self, part: Part) -> None:
        """Go on from a `part` that this rank of a group of the same size has given."""
        for name, tensor in to_tensors(part.weights).items():
            own_part(self._parameters[name].detach()).copy_(tensor)
        parameters, moments = self._optimized, {}
        for name, tensor in to_tensors(part.optimizer).items():
            like = parameters[int(name.split(".", 1)[0])]
            moments[name] = sharded_like(like, tensor) if tensor.shape == own_part(like).shape else tensor
        restore_optimizer(self._trainer.optimizer, moments)
        self._step = part.step

    def whole_weights(self, dtype: str) -> tuple[bool, Arrays | None]:
        """All trained weights, in `dtype`, from rank 0. The first of the pair only says that they are there."""
        whole = {}
        for name, parameter in self._parameters.items():
            tensor = self._trainer.ranks.whole(parameter.detach())
            if self._rank == 0:
                whole[name] = tensor.to("cpu", getattr(torch, dtype))
        return True, to_arrays(whole) if self._rank == 0 else None

    def save(self, directory: Path) -> None:
        """Write this rank's part into a folder that all ranks see. Raises OSError."""
        write_shards(directory, weights=self._parameters, optimizer=optimizer_tensors(self._trainer.optimizer))

    def load(self, directory: Path, step: int) -> None:
        """Read what any number of ranks, or a local engine, saved; it counts as update `step`. Raises CheckpointError."""
        weights, moments = self._read_shards(directory) if is_sharded(directory) else self._read_files(directory)
        copy_parameters({name: parameter.detach() for name, parameter in self._parameters.items()}, weights)
        restore_optimizer(self._trainer.optimizer, moments)
        self._step = step

    def _read_shards(self, directory: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        weights = {name: torch.zeros_like(parameter.detach()) for name, parameter in self._parameters.items()}
        try:
            found = shapes(directory)
            if found.get("weights") != {name: tensor.shape for name, tensor in weights.items()}:
                raise CheckpointError(f"{directory} has other parameters than the model; use the configuration it was made with")
            moments = blank_moments(self._optimized, found.get("optimizer", {}))
            read_shards(directory, weights=weights, optimizer=moments)
        except OSError as error:
            raise CheckpointError(
                f"{directory} cannot be read ({error}); the checkpoint is incomplete, go back to an earlier one"
            ) from error
        return weights, moments

    def _read_files(self, directory: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        parameters, numbered = self._parameters, self._optimized
        weights = read_tensors(directory, "weights", parameters)
        moments = read_tensors(directory, "optimizer")
        return (
            {name: sharded_from(parameters[name], tensor) for name, tensor in weights.items()},
            {name: sharded_from(numbered[int(name.split(".", 1)[0])], tensor) for name, tensor in moments.items()},
        )

    def _part(self) -> Part:
        weights = {name: own_part(parameter) for name, parameter in self._parameters.items()}
        moments = {name: own_part(tensor) for name, tensor in optimizer_tensors(self._trainer.optimizer).items()}
        return Part(self._step, to_arrays(weights), to_arrays(moments))

    @property
    def _parameters(self) -> dict[str, Tensor]:
        return trained_parameters(self._trainer.decoder.model)

    @property
    def _optimized(self) -> list[Any]:
        """Parameters in the order in which the optimiser numbers them."""
        return [parameter for group in self._trainer.optimizer.param_groups for parameter in group["params"]]


def worker_device() -> torch.device:
    """A GPU if Ray gave this process one."""
    return torch.device("cuda" if ray.get_gpu_ids() else "cpu")
