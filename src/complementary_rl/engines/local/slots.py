"""Which sequence lives in which slot of the arena. Rows that compute together move to the front: a batch is a view, not a copy.

Slots are given lowest first and a session's history decides everything, so two runs that ask for the same lay out the same.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from complementary_rl.engines.local.kv_arena import KVArena


@dataclass(eq=False, slots=True)
class Slot:
    """A sequence in the arena: `cached` are the token ids whose keys and values stand there."""

    index: int
    session: str | None
    cached: list[int] = field(default_factory=list)


class SlotTable:
    """Hands out slots, finds those of sessions, and brings the rows of a batch together."""

    def __init__(self, arena: KVArena) -> None:
        self.arena = arena
        self._slots: list[Slot | None] = []
        self._sessions: dict[str, Slot] = {}

    def claim(self, session: str | None) -> Slot:
        """The slot of `session`, or a new one (lowest free index) for an unknown session or none."""
        if session is not None and session in self._sessions:
            return self._sessions[session]
        index = next((i for i, slot in enumerate(self._slots) if slot is None), len(self._slots))
        slot = Slot(index, session)
        if index == len(self._slots):
            self._slots.append(slot)
        else:
            self._slots[index] = slot
        if session is not None:
            self._sessions[session] = slot
        self.arena.reserve(len(self._slots), 0)
        return slot

    def bring_to_front(self, batch: Iterable[Slot]) -> list[Slot]:
        """Swap slots until the batch occupies 0…B−1; returns it in slot order."""
        chosen = sorted(batch, key=lambda slot: slot.index)
        inside = {slot.index for slot in chosen if slot.index < len(chosen)}
        holes = [index for index in range(len(chosen)) if index not in inside]
        if holes:
            self._swap(holes, [slot.index for slot in chosen if slot.index >= len(chosen)])
        return sorted(chosen, key=lambda slot: slot.index)

    def free(self, slot: Slot) -> None:
        """Give one slot back."""
        self._slots[slot.index] = None
        if slot.session is not None:
            del self._sessions[slot.session]

    def free_sessions(self, sessions: Sequence[str]) -> None:
        """Give back the slots of these sessions; unknown names are ignored."""
        for session in sessions:
            if session in self._sessions:
                self.free(self._sessions[session])

    def clear(self) -> None:
        """Forget every sequence, as after a change of the weights. The arena keeps its memory."""
        self._slots.clear()
        self._sessions.clear()

    def _swap(self, left: list[int], right: list[int]) -> None:
        moving = [slot for index in (*left, *right) if (slot := self._slots[index]) is not None]
        self.arena.copy(left + right, right + left, max(len(slot.cached) for slot in moving))
        for a, b in zip(left, right, strict=True):
            self._slots[a], self._slots[b] = self._slots[b], self._slots[a]
            for index in (a, b):
                if (slot := self._slots[index]) is not None:
                    slot.index = index
