"""Many may sample, or one may publish: a generation is of one version."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from complementary_rl.errors import InfrastructureError


class Gate:
    """A lock for threads that prefers whoever publishes: samples that come later wait. `busy_seconds`: how long anyone sampled."""

    def __init__(self, name: str, *, timeout: float) -> None:
        self._name = name
        self._timeout = timeout
        self._changed = threading.Condition()
        self._sampling = 0
        self._publishing = False
        self._since = 0.0
        self.busy_seconds = 0.0

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Shared. Raises InfrastructureError when a publication takes longer than the timeout."""
        with self._changed:
            self._wait(lambda: not self._publishing, "a publication to end")
            if self._sampling == 0:
                self._since = time.perf_counter()
            self._sampling += 1
        try:
            yield
        finally:
            with self._changed:
                self._sampling -= 1
                if self._sampling == 0:
                    self.busy_seconds += time.perf_counter() - self._since
                self._changed.notify_all()

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Alone, after what is being sampled. Raises InfrastructureError when that takes longer than the timeout."""
        with self._changed:
            self._wait(lambda: not self._publishing, "another publication to end")
            self._publishing = True
            try:
                self._wait(lambda: self._sampling == 0, "generations to end")
            except BaseException:
                self._publishing = False
                self._changed.notify_all()
                raise
        try:
            yield
        finally:
            with self._changed:
                self._publishing = False
                self._changed.notify_all()

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        if not self._changed.wait_for(condition, self._timeout):
            raise InfrastructureError(f"the vLLM servers of the {self._name}: waited {self._timeout:g} s for {what}")
