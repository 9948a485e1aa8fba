"""Daemon threads that run numbered jobs under a time limit each. A job that outlasts it is left behind with its thread.

Threads, not processes: environments keep their state between calls. What a thread cannot survive is foreign code that holds the
interpreter lock for ever; run such an environment in a process of its own.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from time import monotonic
from typing import Generic, TypeVar

from complementary_rl.errors import EnvironmentFault

T = TypeVar("T")

_MESSAGE_CHARS = 500
# A deadline that has just passed is looked at again after this many seconds.
_GRACE = 0.001


def what_was_raised(error: BaseException) -> str:
    """Kind and message of an exception out of somebody else's code, of bounded length."""
    return f"{type(error).__name__}: {error}"[:_MESSAGE_CHARS]


class Crew:
    """At most `size` threads, started when needed. `run` is called by one thread at a time."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._workers: list[_Worker] = []

    def run(
        self,
        job: Callable[[int], T],
        count: int,
        timeout: float,
        *,
        kinds: Sequence[str] | None = None,
        late: Callable[[int], None] = lambda index: None,
    ) -> list[T | EnvironmentFault]:
        """The results of ``job(0) … job(count − 1)``, with a fault in place of those that raised or took over `timeout` seconds.

        Jobs of a kind (``kinds[i]``; without, all are of one) of which as many hung as there are threads, and none gave an answer, are
        not tried any more, so that what hangs altogether costs the others about one time limit and not one for every few jobs.

        A job that was left behind and ends after all is followed by ``late(i)``, in its thread; nobody waits for that.
        """
        if not count:
            return []
        batch = _Batch(job, kinds or [""] * count, self._size, late)
        while len(self._workers) < min(self._size, count):
            self._workers.append(_Worker())
        for worker in self._workers:
            worker.begin(batch)
        try:
            while not batch.finished.wait(batch.patience(timeout)):
                for worker in batch.give_up(timeout):
                    worker.dismiss()
                    self._workers.remove(worker)
                    self._workers.append(_Worker())
                    self._workers[-1].begin(batch)
        except BaseException:
            # Interrupted: what still runs is left behind, so that the next batch finds fresh threads.
            batch.cancel()
            self.stop()
            raise
        return batch.results()

    def stop(self) -> None:
        """Let the threads end when they have finished what they do now."""
        for worker in self._workers:
            worker.dismiss()
        self._workers.clear()


class _Batch(Generic[T]):
    """The jobs of one `Crew.run`, shared between its threads."""

    def __init__(self, job: Callable[[int], T], kinds: Sequence[str], most_hung: int, late: Callable[[int], None]) -> None:
        self._job = job
        self._late = late
        self._kinds = kinds
        self._most_hung = most_hung
        self._lock = threading.Lock()
        self._waiting = deque(range(len(kinds)))
        self._hung: Counter[str] = Counter()
        self._answered: set[str] = set()
        self._running: dict[_Worker, tuple[int, float]] = {}
        self._results: dict[int, T | EnvironmentFault] = {}
        self.finished = threading.Event()

    def results(self) -> list[T | EnvironmentFault]:
        return [self._results[index] for index in range(len(self._kinds))]

    def work(self, worker: "_Worker") -> None:
        """Run jobs until none is left, or until this worker has been given up."""
        index = self._take(worker)
        while index is not None:
            outcome: T | EnvironmentFault
            try:
                outcome = self._job(index)
            except EnvironmentFault as fault:
                outcome = fault
            except BaseException as error:  # even SystemExit must not end the thread in silence
                outcome = EnvironmentFault("raised", what_was_raised(error))
            if not self._put(worker, outcome):
                self._late(index)
                return
            index = self._take(worker)

    def patience(self, timeout: float) -> float:
        """Seconds until the longest-running job is overdue."""
        with self._lock:
            oldest = min((started for _, started in self._running.values()), default=monotonic())
        return max(oldest + timeout - monotonic(), _GRACE)

    def give_up(self, timeout: float) -> "list[_Worker]":
        """Settle the overdue jobs as hung, and those of a hopeless kind with them; returns the workers that are stuck in them."""
        with self._lock:
            now = monotonic()
            stuck = [worker for worker, (_, started) in self._running.items() if now - started >= timeout]
            for worker in stuck:
                index, _ = self._running.pop(worker)
                self._hung[self._kinds[index]] += 1
                self._settle(index, EnvironmentFault("hung", f"no answer within {timeout:g} s"))
            # Those that took the places of the first to hang have begun a moment ago and would cost the whole time limit again.
            begun = [worker for worker, (index, _) in self._running.items() if self._is_hopeless(index)]
            for worker in begun:
                self._settle(
                    self._running.pop(worker)[0],
                    EnvironmentFault("hung", f"given up with others that gave no answer within {timeout:g} s"),
                )
            for index in [index for index in self._waiting if self._is_hopeless(index)]:
                self._waiting.remove(index)
                self._settle(index, EnvironmentFault("not_tried", f"others before it gave no answer within {timeout:g} s"))
        return stuck + begun

    def _is_hopeless(self, index: int) -> bool:
        kind = self._kinds[index]
        return self._hung[kind] >= self._most_hung and kind not in self._answered

    def cancel(self) -> None:
        """Start no further jobs."""
        with self._lock:
            self._waiting.clear()

    def _take(self, worker: "_Worker") -> int | None:
        with self._lock:
            if not self._waiting:
                return None
            index = self._waiting.popleft()
            self._running[worker] = (index, monotonic())
            return index

    def _put(self, worker: "_Worker", outcome: T | EnvironmentFault) -> bool:
        with self._lock:
            job = self._running.pop(worker, None)
            if job is None:
                return False
            self._answered.add(self._kinds[job[0]])
            self._settle(job[0], outcome)
            return True

    def _settle(self, index: int, outcome: T | EnvironmentFault) -> None:
        self._results[index] = outcome
        if len(self._results) == len(self._kinds):
            self.finished.set()


class _Worker:
    """A daemon thread that works through the batches it is given."""

    def __init__(self) -> None:
        self._batches: SimpleQueue[_Batch[object] | None] = SimpleQueue()
        threading.Thread(target=self._loop, name="crl-environment", daemon=True).start()

    def begin(self, batch: "_Batch[T]") -> None:
        self._batches.put(batch)  # type: ignore[arg-type]  # the worker never looks at results

    def dismiss(self) -> None:
        self._batches.put(None)

    def _loop(self) -> None:
        while (batch := self._batches.get()) is not None:
            batch.work(self)
