"""Merge: the extractor consolidates the bank, a few chunks at a time.

Which entries meet: those that belong together. A *strand* is all live entries of one (scope, key), if there are two or more; the
entries that are alone under their key form one strand per scope. Strands are taken by turns, one chunk of each, in a fixed order.

How a chunk slides: it is filled from the strand in order of id (of key, in a strand of single entries), after what *came out* of the
strand's last chunk: merged entries first, then those that were kept, at most half a chunk of them. So the context stays bounded while
what was written apart still meets, and at the end of a strand its next chunk starts from the beginning.

A merge takes at most `max_chunks` chunks, all of a round in one batched call, and the next merge goes on where this one stopped.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from complementary_rl.config import MergeConfig
from complementary_rl.experience.bank import Bank
from complementary_rl.experience.extractor import Extractor, Merged
from complementary_rl.experience.tally import Tally
from complementary_rl.experience.waiting import EXTRACTOR_SECONDS, watched
from complementary_rl.types import Entry, Generation, Operation

StrandId = tuple[str, str | None]
"""(scope, key text), or (scope, None) for the entries that are alone under their key."""


@dataclass(slots=True)
class _Position:
    """Where the next chunk of a strand starts: after an id, or after a key in a strand of single entries. `carried` slide into it."""

    after: int = 0
    after_key: str = ""
    carried: list[int] = field(default_factory=list)


class Merger:
    """Runs merges over one bank and counts in `tally` what they did, under names that start with ``merge_``."""

    def __init__(self, bank: Bank, extractor: Extractor, config: MergeConfig, tally: Tally) -> None:
        self._bank = bank
        self._extractor = extractor
        self._config = config
        self._tally = tally
        self._last: StrandId | None = None
        self._positions: dict[StrandId, _Position] = {}

    async def run(self, step: int) -> list[Generation]:
        """One merge. Returns the generations whose answers could not be read; they changed nothing.

        The bank is not locked while the extractor reads: an operation on entries that were retired meanwhile is skipped and counted
        (``merge_conflict``), and what is left of its chunk is read again when the strand comes round.
        """
        unparsable: list[Generation] = []
        begun: set[StrandId] = set()
        taken = 0
        while taken < self._config.max_chunks:
            chunks = self._next_chunks(self._config.max_chunks - taken, begun)
            if not chunks:
                break
            ids = [f"m/s{step}-{taken + i}" for i in range(len(chunks))]
            taken += len(chunks)
            results = await watched(
                self._extractor.merge([chunk for _, chunk in chunks], ids),
                who="the merge",
                what=f"the extractor to read {len(chunks)} chunks of the bank",
                limit=EXTRACTOR_SECONDS,
            )
            for (strand, _), result in zip(chunks, results, strict=True):
                if result is None:
                    self._tally.count("merge_too_long")
                elif not self._apply(strand, result, step):
                    unparsable.append(result.generation)
        return unparsable

    def state_dict(self) -> dict[str, Any]:
        return {
            "last": self._last,
            "positions": [
                [*strand, p.after, p.after_key, p.carried]
                for strand, p in sorted(self._positions.items(), key=lambda item: _strand_order(item[0]))
            ],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._last = None if state["last"] is None else (state["last"][0], state["last"][1])
        self._positions = {
            (scope, key): _Position(after, after_key, list(carried)) for scope, key, after, after_key, carried in state["positions"]
        }

    def _next_chunks(self, most: int, begun: set[StrandId]) -> list[tuple[StrandId, list[Entry]]]:
        """One chunk each of the next strands, and their positions moved on. A strand that this merge has `begun` is not begun
        again."""
        strands = self._strands()
        self._positions = {strand: position for strand, position in self._positions.items() if strand in strands}
        order = sorted(strands, key=_strand_order)
        start = sum(1 for strand in order if self._last is not None and _strand_order(strand) <= _strand_order(self._last))
        chunks: list[tuple[StrandId, list[Entry]]] = []
        for strand in order[start:] + order[:start]:
            if len(chunks) == most:
                break
            chunk = self._fill(strand, strands[strand], restart=strand not in begun)
            begun.add(strand)
            self._last = strand
            if len(chunk) >= 2:
                chunks.append((strand, chunk))
        return chunks

    def _strands(self) -> dict[StrandId, list[str]]:
        """Every strand, with its keys in order."""
        strands: dict[StrandId, list[str]] = defaultdict(list)
        for scope, key, size in self._bank.shelves():
            strands[scope, key if size > 1 else None].append(key)
        return {strand: keys for strand, keys in strands.items() if strand[1] is not None or len(keys) > 1}

    def _fill(self, strand: StrandId, keys: Sequence[str], *, restart: bool) -> list[Entry]:
        position = self._positions.setdefault(strand, _Position())
        carried = [self._bank.entry(entry_id) for entry_id in position.carried if self._bank.is_live(entry_id)]
        fresh = self._read(strand, keys, position, carried)
        if not fresh and not restart:
            return []
        if not fresh:
            position.after, position.after_key, carried = 0, "", []
            fresh = self._read(strand, keys, position, carried)
        if fresh:
            position.after, position.after_key = fresh[-1].id, fresh[-1].key_text
        return carried + fresh

    def _read(self, strand: StrandId, keys: Sequence[str], position: _Position, carried: Sequence[Entry]) -> list[Entry]:
        room = self._config.chunk - len(carried)
        known = {entry.id for entry in carried}
        scope, key = strand
        if key is None:
            start = bisect_right(keys, position.after_key)
            found = [
                entry
                for name in keys[start : start + room + len(known)]
                for entry in self._bank.entries(scope=scope, key_text=name, limit=1)
            ]
        else:
            found = self._bank.entries(scope=scope, key_text=key, after=position.after, limit=room + len(known))
        return [entry for entry in found if entry.id not in known][:room]

    def _apply(self, strand: StrandId, result: Merged, step: int) -> bool:
        """Apply an answer; False if it could not be read."""
        self._tally.count("merge_chunks")
        self._tally.count("merge_repaired", result.parsed.repaired)
        for reason, count in result.parsed.problems.items():
            self._tally.count(f"merge_problem_{reason}", count)
        made: list[int] = []
        with self._bank.transaction():
            self._bank.record_generations([result.generation])
            for operation in result.parsed.operations:
                made += self._apply_operation(operation, result.generation.id, step)
        kept = [entry.id for entry in result.chunk if self._bank.is_live(entry.id) and entry.id not in made]
        self._positions[strand].carried = [*made, *kept][: self._config.chunk // 2]
        if not result.parsed.parsable:
            self._tally.count("merge_unparsable")
        return result.parsed.parsable

    def _apply_operation(self, operation: Operation, generation_id: str, step: int) -> list[int]:
        """The entries that came of it."""
        if not all(self._bank.is_live(target) for target in operation.targets):
            self._tally.count("merge_conflict")
            return []
        self._tally.count(f"merge_{operation.kind}")
        if operation.kind == "drop":
            self._bank.drop(operation.targets, step=step, generation_id=generation_id)
            return []
        assert operation.text is not None
        added = self._bank.merge(operation.targets, operation.text, step=step, generation_id=generation_id)
        if added.entry_id is None:
            self._tally.count("merge_refused")
            return []
        return [added.entry_id]


def _strand_order(strand: StrandId) -> tuple[str, bool, str]:
    scope, key = strand
    return scope, key is None, key or ""
