"""Waiting for Ray actors: every wait ends, with what was asked for, with the fault of the data, or with that of a process.

A process that died is known from its call. One that hangs is known twice: it does not answer that it lives within `heartbeat`, or what it
computes takes longer than `timeout`.
"""

import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ray
import torch
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from complementary_rl.errors import InfrastructureError

TICK_SECONDS = 1.0
FETCH_SECONDS = 300.0
"""Time to bring a result that is there from another node."""
HEALTH = "health"
"""Concurrency group of `ping`: a thread that answers while another computes."""


class WorkerFault(Exception):
    """A process died, hung, or lost the others. `worker` is the one that told so, or that told nothing any more (`hung`)."""

    def __init__(self, worker: "Worker", reason: str, *, hung: bool = False) -> None:
        super().__init__(f"{worker.label} {reason}")
        self.worker = worker
        self.hung = hung


@dataclass(eq=False)
class Worker:
    """A Ray actor as its owner sees it. `home` is its node and process, once it has answered."""

    label: str
    handle: Any
    home: tuple[str, int] | None = None

    def call(self, method: str, *arguments: Any, returns: int = 1) -> Any:
        """Start a call; a reference to its result, or one to each of several."""
        return getattr(self.handle, method).options(num_returns=returns).remote(*arguments)

    def ping(self) -> Any:
        """Ask whether it lives, past whatever it computes."""
        return self.handle.ping.options(concurrency_group=HEALTH).remote()

    def kill(self, fault: WorkerFault | None = None) -> None:
        """End the process; of a `fault` that was its own, whatever state it is in."""
        ray.kill(self.handle, no_restart=True)
        if fault is None or not fault.hung or fault.worker is not self or self.home is None:
            return
        # A stopped process does not hear Ray, and would keep its memory and its GPU.
        node, pid = self.home
        if node == ray.get_runtime_context().get_node_id():
            _kill_process(pid)
        else:
            there = NodeAffinitySchedulingStrategy(node, soft=False)
            ray.remote(_kill_process).options(num_cpus=0, scheduling_strategy=there, max_retries=0).remote(pid)


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds: `timeout` for a call, `heartbeat` for a sign of life."""

    timeout: float
    heartbeat: float

    def outcomes(self, calls: Mapping[Worker, Any]) -> Iterator[tuple[Worker, Any]]:
        """Each worker with the result of its call or its WorkerFault, as they come. Raises what a worker raised because of its data."""
        pending = {reference: worker for worker, reference in calls.items()}
        pulses = {worker: _Pulse(worker) for worker in calls}
        deadline = time.monotonic() + self.timeout
        while pending:
            done, _ = ray.wait(list(pending), num_returns=1, timeout=min(TICK_SECONDS, self.heartbeat / 4))
            for reference in done:
                worker = pending.pop(reference)
                yield worker, _result(worker, reference)
            late = time.monotonic() > deadline
            for reference, worker in list(pending.items()):
                if late or pulses[worker].silent_for(self.heartbeat):
                    del pending[reference]
                    reason = f"took longer than {self.timeout:g} s" if late else f"gave no sign of life for {self.heartbeat:g} s"
                    yield worker, WorkerFault(worker, reason, hung=True)

    def all(self, calls: Mapping[Worker, Any]) -> list[Any]:
        """The results in the order of `calls`. Raises the first WorkerFault."""
        results = {}
        for worker, outcome in self.outcomes(calls):
            if isinstance(outcome, WorkerFault):
                raise outcome
            results[worker] = outcome
        return [results[worker] for worker in calls]

    def meet(self, workers: list[Worker]) -> None:
        """Wait until new workers are up. They have all of `timeout`: imports come before any sign of life."""
        born = Patience(self.timeout, self.timeout)
        for worker, home in zip(workers, born.all({worker: worker.ping() for worker in workers}), strict=True):
            worker.home = home


def where_am_i() -> tuple[str, int]:
    """Node and process of the caller, for `Worker.home`."""
    return ray.get_runtime_context().get_node_id(), os.getpid()


class _Pulse:
    """When a worker was last asked and last answered."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._question: Any = None
        self._since = time.monotonic()

    def silent_for(self, limit: float) -> bool:
        now = time.monotonic()
        if self._question is not None and ray.wait([self._question], timeout=0)[0]:
            self._question, self._since = None, now  # of death the call itself tells
        if self._question is None and now - self._since > limit / 4:
            self._question, self._since = self._worker.ping(), now
        return self._question is not None and now - self._since > limit


def _result(worker: Worker, reference: Any) -> Any:
    try:
        return ray.get(reference, timeout=FETCH_SECONDS)
    except RayTaskError as error:
        if _of_processes(error.cause):
            return _fault(worker, "lost the others", error.cause)
        raise error.cause from error
    except RayError as error:
        return _fault(worker, "is gone", error)


def _fault(worker: Worker, what: str, cause: BaseException) -> WorkerFault:
    fault = WorkerFault(worker, f"{what} ({type(cause).__name__}: {next(iter(str(cause).splitlines()), 'no message')})")
    fault.__cause__ = cause
    return fault


def _of_processes(cause: BaseException) -> bool:
    """Whether an exception in a worker is of the processes around it. Collectives raise plain RuntimeErrors."""
    ours = (InfrastructureError, torch.OutOfMemoryError, NotImplementedError, RecursionError)
    return isinstance(cause, RuntimeError | ConnectionError | RayError) and not isinstance(cause, ours)


def _kill_process(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
