"""Random numbers for environments that draw from Python's and NumPy's global generators, as TextArena and GEM do.

Threads play side by side, so that such environments would draw each other's numbers, and seeding them would reset everybody's.
"""

import random
import threading
from types import TracebackType
from typing import Any

import numpy as np

_LOCK = threading.Lock()
# Longer than any environment should take, so that one that hangs inside does not keep the threads of all others.
_PATIENCE_SECONDS = 60.0


class OwnRandom:
    """``with own:`` the global generators are those of this environment, and afterwards again what they were.

    Only one thread at a time is inside, so that environments which need this take their steps one after the other.
    Raises TimeoutError when another stays inside.
    """

    def __init__(self) -> None:
        self._mine: tuple[Any, Any] | None = None

    def __enter__(self) -> None:
        if not _LOCK.acquire(timeout=_PATIENCE_SECONDS):
            raise TimeoutError(f"another environment has held the global random generators for {_PATIENCE_SECONDS:g} s")
        self._others = _states()
        if self._mine is not None:
            _restore(self._mine)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._mine = _states()
        _restore(self._others)
        _LOCK.release()


def _states() -> tuple[Any, Any]:
    return random.getstate(), np.random.get_state()  # noqa: NPY002  # the global generator is the point


def _restore(states: tuple[Any, Any]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])  # noqa: NPY002
