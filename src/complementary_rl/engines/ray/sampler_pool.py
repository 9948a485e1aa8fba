"""All samplers of one model: who serves which episode, and one version of the weights for all.

requests ──► a sampler for each: the one that holds its session's cache, else in even blocks, since neighbours share prompts
publish  ──► stage on every sampler ─► commit on every sampler; what fails before the first commit leaves the old version everywhere
fault    ──► a new sampler with the weights served now, and what the old one was asked for again: requests carry their seeds
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray

from complementary_rl.config import ClusterConfig, ModelConfig, WorkersConfig
from complementary_rl.engines.protocol import SampleRequest, SamplingParams
from complementary_rl.engines.ray.arrays import Arrays
from complementary_rl.engines.ray.calls import HEALTH, Patience, Worker, WorkerFault
from complementary_rl.engines.ray.recovery import Recoveries
from complementary_rl.engines.ray.sampler_worker import SamplerWorker
from complementary_rl.errors import InfrastructureError
from complementary_rl.types import Generation


class SamplerPool:
    """`workers.sample` samplers of the model `name`. One thread uses it."""

    def __init__(
        self,
        name: str,
        model: ModelConfig,
        *,
        workers: WorkersConfig,
        cluster: ClusterConfig,
        recoveries: Recoveries,
        max_context: int,
    ) -> None:
        self._name = name
        self._workers = workers
        self._recoveries = recoveries
        self._patience = Patience(cluster.timeout, cluster.heartbeat)
        self._arguments = (name, model)
        self._max_context = max_context
        self._samplers: list[Worker] = []
        self._closed = False
        self._homes: dict[str, int] = {}
        self._served: tuple[int, Any] | None = None
        """Version and weights that all samplers serve; None: the model as it was."""

    def start(self) -> None:
        """Bring all samplers up. Raises UserError when the model cannot be loaded."""
        self._samplers = [self._new(index) for index in range(self._workers.sample)]
        try:
            self._patience.meet(self._samplers)
        except WorkerFault as fault:
            raise InfrastructureError(f"the samplers of the {self._name} do not come up: {fault}") from fault
        self._each("start", dict.fromkeys(range(len(self._samplers)), ()))

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Generation]:
        """See `Engine.sample`."""
        shares: dict[int, list[int]] = {}
        for position, sampler in enumerate(self._places(requests)):
            shares.setdefault(sampler, []).append(position)
        asked = {sampler: ([requests[i] for i in positions], params) for sampler, positions in shares.items()}
        generations: dict[int, Generation] = {}
        for sampler, results in self._each("sample", asked).items():
            generations |= zip(shares[sampler], results, strict=True)
        return [generations[position] for position in range(len(requests))]

    def release(self, sessions: Sequence[str]) -> None:
        """See `Engine.release`."""
        for session in sessions:
            home = self._homes.pop(session, None)
            if home is not None:
                self._samplers[home].call("release", [session])

    def publish(self, version: int, weights: Any) -> None:
        """Serve `weights`, a reference to arrays, as `version`. Raises ValueError or InfrastructureError with the old version serving."""
        everyone = range(len(self._samplers))
        self._each("stage", dict.fromkeys(everyone, (version, weights)))
        self._served = (version, weights)
        self._homes.clear()
        # A sampler that fails here comes back with the new weights staged, and commits them like the others.
        self._each("commit", dict.fromkeys(everyone, (version,)))

    def weights(self) -> Arrays:
        """What is served."""
        arrays: Arrays = self._each("weights", {0: ()})[0]
        return arrays

    def export(self, directory: Path) -> None:
        """Have a sampler write what is served as a Hugging Face folder, or as one for PEFT."""
        self._each("export", {0: (directory,)})

    def close(self) -> None:
        """End the processes for good; idempotent."""
        self._closed = True
        for sampler in self._samplers:
            sampler.kill()
        self._samplers = []

    def _places(self, requests: Sequence[SampleRequest]) -> list[int]:
        new = [i for i, request in enumerate(requests) if request.session is None or request.session not in self._homes]
        block = {index: position * len(self._samplers) // len(new) for position, index in enumerate(new)}
        for index, sampler in block.items():
            if (session := requests[index].session) is not None:
                self._homes[session] = sampler
        return [block[i] if i in block else self._homes[str(request.session)] for i, request in enumerate(requests)]

    def _each(self, method: str, arguments: dict[int, tuple[Any, ...]]) -> dict[int, Any]:
        """Call `method` of some samplers and replace those that fail, until each has answered."""
        results: dict[int, Any] = {}
        while waiting := [index for index in arguments if index not in results]:
            calls = {self._samplers[index]: self._samplers[index].call(method, *arguments[index]) for index in waiting}
            places = {self._samplers[index]: index for index in waiting}
            faults = []
            for sampler, outcome in self._patience.outcomes(calls):
                if isinstance(outcome, WorkerFault):
                    faults.append((places[sampler], outcome))
                else:
                    results[places[sampler]] = outcome
            for index, fault in faults:
                self._replace(index, fault, loaded=method != "start")
        return results

    def _replace(self, index: int, fault: WorkerFault, *, loaded: bool) -> None:
        start = time.monotonic()
        while True:
            if self._closed:
                raise InfrastructureError(f"the samplers of the {self._name} were closed while they computed") from fault
            self._samplers[index].kill(fault)
            self._recoveries.spend(fault)
            fresh = self._samplers[index] = self._new(index)
            try:
                self._patience.meet([fresh])
                if loaded:
                    self._bring_up(fresh)
            except WorkerFault as another:
                fault = another
                continue
            break
        self._homes = {session: home for session, home in self._homes.items() if home != index}
        self._recoveries.tell(fault, "sampler replaced", time.monotonic() - start)

    def _bring_up(self, sampler: Worker) -> None:
        self._patience.all({sampler: sampler.call("start")})
        if self._served is not None:
            version, weights = self._served
            self._patience.all({sampler: sampler.call("stage", version, weights)})
            self._patience.all({sampler: sampler.call("commit", version)})

    def _new(self, index: int) -> Worker:
        options = {"num_cpus": 1, "num_gpus": self._workers.sample_gpus, "max_restarts": 0, "concurrency_groups": {HEALTH: 1}}
        make = ray.remote(**options)(SamplerWorker)
        return Worker(f"{self._name} sampler {index}", make.remote(*self._arguments, max_context=self._max_context))
