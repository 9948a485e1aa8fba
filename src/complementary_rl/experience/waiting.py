"""Waiting, so that nothing waits for ever and nobody has to guess for what."""

import asyncio
import logging
from collections.abc import Coroutine
from time import monotonic
from typing import Any, TypeVar

from complementary_rl.errors import InfrastructureError

EXTRACTOR_SECONDS = 3600.0
"""How long one call of the extractor may take before it counts as hung. Long: big models on small machines are slow."""
WARN_SECONDS = 60.0
"""A wait that takes longer is named in the log, again and again."""

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


async def watched(work: Coroutine[Any, Any, _T], *, who: str, what: str, limit: float) -> _T:
    """Await `work` for at most `limit` seconds. Every `WARN_SECONDS` a warning says that `who` waits for `what`.

    Cancelling the caller, or running out of time, cancels `work`. Raises InfrastructureError at the limit.
    """
    task = asyncio.ensure_future(work)
    start = monotonic()
    try:
        while True:
            waited = monotonic() - start
            done, _ = await asyncio.wait({task}, timeout=min(WARN_SECONDS, limit - waited))
            if done:
                return task.result()
            waited = monotonic() - start
            if waited >= limit:
                raise InfrastructureError(f"{who} waited {waited:.0f} s for {what}, and gave up")
            _log.warning("%s has been waiting for %s for %.0f s (at most %.0f)", who, what, waited, limit)
    finally:
        task.cancel()


class Signal:
    """Wakes everyone who waits when something has changed. A waiter that is cancelled leaves no trace."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        """Return at the next `notify`. Check the condition before, without an await between, and again after."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
