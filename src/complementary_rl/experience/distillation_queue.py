"""The episodes that wait for the extractor: bounded, in order, and none leaves before it has been dealt with."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from complementary_rl.experience.transcript import Transcript, transcript_from_json, transcript_to_json
from complementary_rl.experience.waiting import Signal


@dataclass(slots=True)
class Waiting:
    """An episode in the queue. `alone`: a batch with it failed, so that it is read by itself; `attempts` counts those readings."""

    transcript: Transcript
    attempts: int = 0
    alone: bool = False


class DistillationQueue:
    """First in, first out, at most `size` long. One reader, any number of writers, all in one event loop.

    The reader looks at the head, works, and only then lets it go: a reader that is cancelled or dies loses nothing.
    """

    def __init__(self, size: int) -> None:
        self.changed = Signal()
        self._size = size
        self._waiting: deque[Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def full(self) -> bool:
        return len(self) >= self._size

    def put(self, transcript: Transcript) -> None:
        """Append an episode; there must be room."""
        assert not self.full
        self._waiting.append(Waiting(transcript))
        self.changed.notify()

    async def room(self) -> None:
        """Return once the queue is not full."""
        while self.full:
            await self.changed.wait()

    async def join(self) -> None:
        """Return once the queue is empty."""
        while self._waiting:
            await self.changed.wait()

    def head(self, most: int) -> list[Waiting]:
        """The first `most` episodes that may be read together, and stay in the queue; one that must be read alone comes alone."""
        head: list[Waiting] = []
        for waiting in islice(self._waiting, most):
            if waiting.alone and head:
                break
            head.append(waiting)
            if waiting.alone:
                break
        return head

    def let_go(self, head: Sequence[Waiting]) -> None:
        """Remove what `head` returned."""
        for waiting in head:
            assert self._waiting[0] is waiting
            self._waiting.popleft()
        self.changed.notify()

    def state_dict(self) -> list[dict[str, Any]]:
        return [
            {"transcript": transcript_to_json(waiting.transcript), "attempts": waiting.attempts, "alone": waiting.alone}
            for waiting in self._waiting
        ]

    def load_state_dict(self, state: Sequence[dict[str, Any]]) -> None:
        self._waiting = deque(Waiting(transcript_from_json(item["transcript"]), item["attempts"], item["alone"]) for item in state)
        self.changed.notify()
