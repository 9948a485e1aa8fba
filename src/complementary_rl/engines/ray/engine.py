"""The distributed engine: a trainer group and a sampler pool of one model behind the protocol.

event loop ──jobs──► training thread: update, logprobs, checkpoints (ranks) ──weights by reference──┐
           ──jobs──► sampling thread: sample, release (samplers)            ◄──publish──────────────┘

What is trained next may be computed while what was published last is sampled from.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import ray
from torch import Tensor

from complementary_rl.config import ClusterConfig, ModelConfig, WorkersConfig
from complementary_rl.engines.local.checkpoint import read_state, read_tensors, write_directory, write_state
from complementary_rl.engines.local.worker import Worker
from complementary_rl.engines.protocol import LossTerm, OptimParams, SampleRequest, SamplingParams, TrainingSample
from complementary_rl.engines.ray.arrays import to_arrays, to_tensors
from complementary_rl.engines.ray.connection import disconnect
from complementary_rl.engines.ray.recovery import Recoveries
from complementary_rl.engines.ray.sampler_pool import SamplerPool
from complementary_rl.engines.ray.trainer_group import TrainerGroup
from complementary_rl.types import Generation, Metrics

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Result = TypeVar("Result")


class RayEngine:
    """Implements `engines.protocol.Engine` with the processes `workers`. Ray is joined already (`connection.connect`), and left on `close`.

    Results equal the local engine's up to the order in which floats are added. Dead and hung processes are replaced and what they were
    asked for is done again, `cluster.fault_budget` times; then InfrastructureError. Directories must be seen by all nodes.
    """

    def __init__(
        self,
        name: str,
        model: ModelConfig,
        tokenizer: "PreTrainedTokenizerBase",
        *,
        max_context: int,
        workers: WorkersConfig,
        cluster: ClusterConfig,
        keep_reference: bool = False,
    ) -> None:
        self.name = name
        self.tokenizer = tokenizer
        self.max_context = max_context
        self.version = 0
        self.compute_seconds = dict.fromkeys(("sample", "update", "logprobs", "publish"), 0.0)
        self._dtype = model.dtype
        self._recoveries = Recoveries(name, cluster.fault_budget)
        shared: dict[str, Any] = {
            "workers": workers,
            "cluster": cluster,
            "recoveries": self._recoveries,
            "max_context": max_context,
        }
        self._group = TrainerGroup(name, model, **shared, keep_reference=keep_reference)
        self._pool = SamplerPool(name, model, **shared)
        self._unpublished = False
        self._training, self._sampling = Worker(f"training-{name}"), Worker(f"sampling-{name}")
        try:
            starts = [self._training.submit(self._group.start), self._sampling.submit(self._pool.start)]
            for start in starts:
                start.result()
        except BaseException:
            self.close()
            raise

    async def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Generation]:
        """See `Engine.sample`."""
        return await self._sampling.run(lambda: self._timed("sample", lambda: self._pool.sample(requests, params)))

    def release(self, sessions: Sequence[str]) -> None:
        """See `Engine.release`. Takes effect behind the calls already made."""
        if not self._sampling.closed:
            self._sampling.submit(lambda: self._pool.release(sessions))

    async def logprobs(self, samples: Sequence[TrainingSample]) -> list[Tensor]:
        """See `Engine.logprobs`."""
        return await self._training.run(lambda: self._timed("logprobs", lambda: self._group.logprobs(samples)))

    async def update(self, terms: Sequence[LossTerm], optim: OptimParams) -> Metrics:
        """See `Engine.update`."""
        return await self._training.run(lambda: self._timed("update", lambda: self._update(terms, optim)))

    async def publish(self) -> int:
        """See `Engine.publish`. When it fails the samplers serve what they served."""
        return await self._training.run(lambda: self._timed("publish", self._publish))

    def save(self, directory: Path) -> None:
        """See `Engine.save`. Each rank writes its part; any number of ranks, or a local engine, reads them."""
        self._training.submit(lambda: write_directory(directory.absolute(), self._write)).result()

    def load(self, directory: Path) -> None:
        """See `Engine.load`. Reads what a local engine saved as well."""
        self._training.submit(lambda: self._load(directory.absolute())).result()

    def export(self, directory: Path) -> None:
        """See `Engine.export`. A sampler writes what it serves."""
        self._sampling.submit(lambda: write_directory(directory.absolute(), self._export)).result()

    def take_events(self) -> list[str]:
        """See `Engine.take_events`."""
        return self._recoveries.take()

    def close(self) -> None:
        """See `Engine.close`. Ends all processes of the model, and leaves Ray."""
        if self._training.closed:
            return
        self._training.close()
        self._sampling.close()
        self._group.close()
        self._pool.close()
        disconnect()

    def _update(self, terms: Sequence[LossTerm], optim: OptimParams) -> Metrics:
        metrics = self._group.update(terms, optim)
        self._unpublished |= not metrics["skipped"]
        return metrics

    def _publish(self) -> int:
        weights = self._group.whole_weights(self._dtype)
        self._serve(self.version + 1, weights)
        self._unpublished = False
        return self.version

    def _serve(self, version: int, weights: object) -> None:
        self._sampling.submit(lambda: self._pool.publish(version, weights)).result()
        self.version = version

    def _write(self, directory: Path) -> None:
        self._group.save(directory)
        served = {"sampler": to_tensors(self._sampling.submit(self._pool.weights).result())} if self._unpublished else {}
        write_state(
            directory, {"model": self._group.description, "version": self.version, "unpublished": self._unpublished}, **served
        )

    def _load(self, directory: Path) -> None:
        state = read_state(directory, model=self._group.description)
        served = ray.put(to_arrays(read_tensors(directory, "sampler"))) if state["unpublished"] else None
        self._group.load(directory)
        self._serve(state["version"], self._group.whole_weights(self._dtype) if served is None else served)
        self._unpublished = state["unpublished"]

    def _export(self, directory: Path) -> None:
        self._pool.export(directory)
        self.tokenizer.save_pretrained(directory)

    def _timed(self, phase: str, job: Callable[[], Result]) -> Result:
        start = time.perf_counter()
        try:
            return job()
        finally:
            self.compute_seconds[phase] += time.perf_counter() - start
