"""Merge: consolidation of the bank by the extractor, in chunks that slide over the entries filed under one key.

Entries that belong together (same scope, same key) meet in one chunk; what survives a chunk slides into the next, so context stays
bounded. A merge reads at most `max_chunks` chunks and the next one goes on with the key after the last.
"""

from dataclasses import dataclass
from typing import Any

from complementary_rl.config import MergeConfig
from complementary_rl.experience.bank import Bank
from complementary_rl.experience.extractor import Extractor
from complementary_rl.experience.operations import Parsed
from complementary_rl.types import Entry, Generation

Shelf = tuple[str, str]
"""(scope, key text)."""


@dataclass(slots=True)
class _Slide:
    """Where a merge stands on one shelf: the entries in the window now, and the last id read."""

    window: list[Entry]
    read_to: int


class Merger:
    """Runs merges over one bank; `take_counts` reports what they did."""

    def __init__(self, bank: Bank, extractor: Extractor, config: MergeConfig) -> None:
        self._bank = bank
        self._extractor = extractor
        self._config = config
        self._after: Shelf | None = None
        self.counts: dict[str, int] = {}

    async def run(self, step: int) -> None:
        """One merge. The bank is not locked while the extractor reads: a change whose entries were retired meanwhile is skipped
        and counted as "conflict", and those entries are read again by a later merge."""
        budget = self._config.max_chunks
        slides = {shelf: self._advance(shelf, _Slide([], 0)) for shelf in self._next_shelves(budget)}
        serial = 0
        while slides and budget > 0:
            shelves = list(slides)[:budget]
            budget -= len(shelves)
            ids = [f"m/s{step}-{serial + i}" for i in range(len(shelves))]
            serial += len(shelves)
            results = await self._extractor.merge([slides[shelf].window for shelf in shelves], ids)
            for shelf, (generation, parsed) in zip(shelves, results, strict=True):
                survivors = self._apply(slides[shelf].window, generation, parsed, step)
                self._after = shelf
                moved = self._advance(shelf, _Slide(survivors, slides[shelf].read_to))
                if moved.read_to == slides[shelf].read_to:
                    del slides[shelf]
                else:
                    slides[shelf] = moved

    def take_counts(self) -> dict[str, int]:
        """Chunks, merges, drops, conflicts and unparsable answers since the last call."""
        counts, self.counts = self.counts, {}
        return counts

    def state_dict(self) -> dict[str, Any]:
        return {"after": list(self._after) if self._after else None}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._after = (state["after"][0], state["after"][1]) if state["after"] else None

    def _next_shelves(self, limit: int) -> list[Shelf]:
        crowded = [(scope, key) for scope, key, size in self._bank.shelves() if size > 1]
        start = sum(1 for shelf in crowded if self._after is not None and shelf <= self._after)
        return (crowded[start:] + crowded[:start])[:limit]

    def _advance(self, shelf: Shelf, slide: _Slide) -> _Slide:
        """Fill the window up; half of it at most is what came from the chunk before, the newest survivors."""
        kept = slide.window[-(self._config.chunk // 2) :] if slide.window else []
        new = self._bank.entries(scope=shelf[0], key_text=shelf[1], after=slide.read_to, limit=self._config.chunk - len(kept))
        return _Slide(kept + new, new[-1].id if new else slide.read_to)

    def _apply(self, chunk: list[Entry], generation: Generation, parsed: Parsed, step: int) -> list[Entry]:
        self._count("chunks")
        if not parsed.parsable:
            self._count("unparsable")
            return chunk
        by_id = {entry.id: entry for entry in chunk}
        with self._bank.transaction():
            self._bank.record_generations([generation])
            for operation in parsed.operations:
                if not all(self._bank.is_live(target) for target in operation.targets):
                    self._count("conflict")
                    continue
                first = by_id[operation.targets[0]]
                if operation.kind == "drop":
                    self._bank.drop(operation.targets, step=step, generation_id=generation.id)
                else:
                    assert operation.text is not None
                    self._bank.merge(
                        operation.targets,
                        operation.text,
                        key_text=first.key_text,
                        scope=first.scope,
                        step=step,
                        generation_id=generation.id,
                    )
                self._count(operation.kind)
        survivors = {entry.id for entry in chunk if self._bank.is_live(entry.id)}
        return [entry for entry in chunk if entry.id in survivors]

    def _count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1
