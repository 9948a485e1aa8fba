"""The compute thread of one engine: jobs run one at a time, in the order they were asked for, and never block the event loop."""

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

_CLOSE_SECONDS = 10.0

Result = TypeVar("Result")


class Worker:
    """A daemon thread with a queue. A cancelled await withdraws its job if it has not begun; one that runs is finished."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.closed = False
        self._lock = threading.Lock()
        self._thread.start()

    def submit(self, job: Callable[[], Result]) -> "Future[Result]":
        """Queue `job`; its result or exception comes through the future. Raises RuntimeError after `close`."""
        future: Future[Result] = Future()
        with self._lock:
            if self.closed:
                raise RuntimeError(f"{self._thread.name} is closed")
            self._jobs.put((future, job))
        return future

    async def run(self, job: Callable[[], Result]) -> Result:
        """Queue `job` and await its result."""
        return await asyncio.wrap_future(self.submit(job))

    def close(self) -> None:
        """Finish what is queued and stop; waits a few seconds at most. Idempotent."""
        with self._lock:
            if not self.closed:
                self.closed = True
                self._jobs.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            future, job = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = job()
            except BaseException as error:  # whoever awaits the future decides what it means
                future.set_exception(error)
            else:
                future.set_result(result)
            # An idle thread must not keep the last job's tensors alive.
            del item, future, job
