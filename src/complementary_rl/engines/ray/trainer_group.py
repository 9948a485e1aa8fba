"""The trainer of one model over several processes, which outlives them.

update n ──► every rank: forward, backward (its part of the batch), step ──► metrics, and every `snapshot_interval`-th time its part
fault    ──► kill all ranks ─► new ones ─► put the last parts back ─► repeat the updates since ─► repeat what failed

Why parts in the object store, and not files: they come back in seconds, survive the process that gave them, and need no shared disk. They
do not survive their node; then the run ends with what to do, and goes on from its last checkpoint.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.exceptions import ObjectLostError
from torch import Tensor

from complementary_rl.config import ClusterConfig, ModelConfig, WorkersConfig
from complementary_rl.engines.protocol import LossTerm, OptimParams, TrainingSample
from complementary_rl.engines.ray.calls import HEALTH, Patience, Worker, WorkerFault
from complementary_rl.engines.ray.recovery import Recoveries
from complementary_rl.engines.ray.trainer_rank import TrainerRank
from complementary_rl.errors import InfrastructureError
from complementary_rl.types import Metrics

Result = TypeVar("Result")


@dataclass(slots=True)
class _Durable:
    """What a new group starts from: the `parts` of each rank (None: the model as it was), then the updates since."""

    parts: list[Any] | None = None
    since: list[tuple[int, Any]] = field(default_factory=list)


class TrainerGroup:
    """`workers.train` ranks of the model `name`. One thread uses it. A call that raises ValueError changed nothing."""

    def __init__(
        self,
        name: str,
        model: ModelConfig,
        *,
        workers: WorkersConfig,
        cluster: ClusterConfig,
        recoveries: Recoveries,
        max_context: int,
        keep_reference: bool,
    ) -> None:
        self._name = name
        self._workers = workers
        self._cluster = cluster
        self._recoveries = recoveries
        self._patience = Patience(cluster.timeout, cluster.heartbeat)
        self._arguments = (name, model)
        self._settings = {"max_context": max_context, "keep_reference": keep_reference}
        self._ranks: list[Worker] = []
        self._durable = _Durable()
        self._step = 0
        self._closed = False
        self.description = ""
        """What `describe` says of the model; known after `start`."""

    def start(self) -> None:
        """Bring all ranks up. Raises UserError as `load_model`."""
        self._attempt(lambda: None)

    def update(self, terms: Sequence[LossTerm], optim: OptimParams) -> Metrics:
        """See `Engine.update`."""
        step = self._step + 1
        keep = step % self._cluster.snapshot_interval == 0
        work = ray.put((tuple(terms), optim))
        metrics, parts = self._attempt(lambda: self._update(step, work, keep))
        self._step = step
        if keep:
            self._durable = _Durable(parts)
        else:
            self._durable.since.append((step, work))
        return metrics

    def logprobs(self, samples: Sequence[TrainingSample]) -> list[Tensor]:
        """See `Engine.logprobs`."""
        given = ray.put(tuple(samples))
        ranks: list[list[Tensor]] = self._attempt(lambda: self._all("logprobs", given))
        return [sum(rows[1:], rows[0]) for rows in zip(*ranks, strict=True)]

    def whole_weights(self, dtype: str) -> Any:
        """A reference to all trained weights in `dtype`, as arrays."""

        def gather() -> Any:
            _, weights = self._heavy("whole_weights", dtype)
            return weights[0]

        return self._attempt(gather)

    def save(self, directory: Path) -> None:
        """Every rank writes its part. Raises OSError when the disk refuses."""
        self._attempt(lambda: self._all("save", directory))

    def load(self, directory: Path) -> None:
        """Read what `save`, with any number of ranks, or a local engine wrote. Raises CheckpointError."""
        step = self._step + 1

        def read() -> list[Any]:
            self._all("load", directory, step)
            return self._heavy("part")[1]

        self._durable = _Durable(self._attempt(read))
        self._step = step

    def close(self) -> None:
        """End the processes for good; idempotent."""
        self._closed = True
        self._end()

    def _end(self, fault: WorkerFault | None = None) -> None:
        for rank in self._ranks:
            rank.kill(fault)
        self._ranks = []

    def _update(self, step: int, work: Any, keep: bool) -> tuple[Metrics, list[Any]]:
        """The metrics, and references to the parts of all ranks."""
        metrics, parts = self._heavy("update", step, work, keep)
        return metrics[0], parts

    def _attempt(self, job: Callable[[], Result]) -> Result:
        """Do a job of all ranks, again after every fault that the budget covers."""
        fault: WorkerFault | None = None
        since = time.monotonic()
        while True:
            try:
                if not self._ranks:
                    self._begin()
                    if fault is not None:
                        done = f"{len(self._ranks)} trainer ranks restarted at update {self._step}"
                        self._recoveries.tell(fault, done, time.monotonic() - since)
                return job()
            except WorkerFault as another:
                fault, since = another, time.monotonic()
                self._end(fault)
                self._recoveries.spend(fault)
            except Exception:
                # One rank may have raised while the others wait for it in a collective: nobody knows where they stand.
                self._end()
                raise

    def _begin(self) -> None:
        if self._closed:
            raise InfrastructureError(f"the trainer of the {self._name} was closed while it computed")
        ranks = self._new_ranks()
        self._ranks = ranks
        self._patience.meet(ranks)
        (meeting_place,) = self._patience.all({ranks[0]: ranks[0].call("meeting_place")})
        self.description = self._all("start", meeting_place, self._cluster.timeout)[0]
        if self._durable.parts is not None:
            self._put_back(self._durable.parts)
        for step, work in self._durable.since:
            self._update(step, work, keep=False)

    def _new_ranks(self) -> list[Worker]:
        size = self._workers.train
        options = {"num_cpus": 1, "num_gpus": self._workers.train_gpus, "max_restarts": 0, "concurrency_groups": {HEALTH: 1}}
        make = ray.remote(**options)(TrainerRank)
        return [
            Worker(f"{self._name} trainer rank {rank}", make.remote(*self._arguments, **self._settings, rank=rank, size=size))
            for rank in range(size)
        ]

    def _put_back(self, parts: list[Any]) -> None:
        try:
            self._patience.all({rank: rank.call("put_back", part) for rank, part in zip(self._ranks, parts, strict=True)})
        except WorkerFault as fault:
            if isinstance(fault.__cause__, ObjectLostError):
                raise InfrastructureError(
                    f"a node went down with weights of the {self._name}; continue from the last checkpoint with --resume"
                ) from fault
            raise

    def _heavy(self, method: str, *arguments: Any) -> tuple[list[Any], list[Any]]:
        """Call what returns a small and a large thing: the small ones, and references to the large ones, which stay where they are."""
        calls = {rank: rank.call(method, *arguments, returns=2) for rank in self._ranks}
        small = self._patience.all({rank: first for rank, (first, _) in calls.items()})
        return small, [second for _, second in calls.values()]

    def _all(self, method: str, *arguments: Any) -> list[Any]:
        return self._patience.all({rank: rank.call(method, *arguments) for rank in self._ranks})
