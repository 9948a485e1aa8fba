"""Which entries meet in a merge: the paper's chunks that slide over strands, or clusters of near-duplicates."""

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from complementary_rl.experience.bank import Bank
from complementary_rl.experience.near_duplicates import NearDuplicates
from complementary_rl.experience.strands import Members, StrandId, Strands, strand_order
from complementary_rl.experience.tally import Tally
from complementary_rl.types import Entry

_ATTEMPTS = 3
"""How often a cluster is read whose answer could not be applied, before it is left until another near-duplicate comes."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Entries that the extractor sees together. `origin`: the strand, or the entry a cluster was formed around."""

    origin: StrandId | int
    entries: tuple[Entry, ...]


class Candidates(Protocol):
    """Hands out chunks. Everything it remembers from one merge to the next is in `state_dict`."""

    def begin(self, strands: Strands) -> None:
        """A merge begins, of a bank with these strands."""
        ...

    async def next(self, most: int) -> list[Chunk]:
        """Up to `most` chunks of two or more entries, no entry twice; none when this merge has nothing more to read."""
        ...

    def answered(self, chunk: Chunk, made: Sequence[int], *, settled: bool) -> None:
        """A chunk was read and entries were `made` of it. Not `settled`: its answer could not be read or applied in full."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@dataclass(slots=True)
class _Position:
    """Where the next chunk of a strand starts: after a place. `carried` are the entries that slide into it."""

    after: int = 0
    carried: list[int] = field(default_factory=list)


class SlidingChunks:
    """Strands are taken by turns, one chunk of each, and none is begun twice in a merge.

    A chunk is filled from its strand by place, after what *came out* of the strand's last chunk: merged entries first, then those that
    were kept, at most half a chunk of them. So the context stays bounded while what was written apart still meets, and at the end of a
    strand its next chunk starts from the beginning.
    """

    def __init__(self, bank: Bank, size: int) -> None:
        self._bank = bank
        self._size = size
        self._strands: Strands = {}
        self._begun: set[StrandId] = set()
        self._last: StrandId | None = None
        self._positions: dict[StrandId, _Position] = {}

    def begin(self, strands: Strands) -> None:
        self._strands = strands
        self._begun = set()
        self._positions = {strand: position for strand, position in self._positions.items() if strand in strands}

    async def next(self, most: int) -> list[Chunk]:
        order = list(self._strands)
        start = 0 if self._last is None else bisect_right(order, strand_order(self._last), key=strand_order)
        chunks: list[Chunk] = []
        for strand in order[start:] + order[:start]:
            if len(chunks) == most:
                break
            entries = self._fill(strand, restart=strand not in self._begun)
            self._begun.add(strand)
            self._last = strand
            if len(entries) >= 2:
                chunks.append(Chunk(strand, tuple(entries)))
        return chunks

    def answered(self, chunk: Chunk, made: Sequence[int], *, settled: bool) -> None:
        assert not isinstance(chunk.origin, int)
        kept = [entry.id for entry in chunk.entries if self._bank.is_live(entry.id) and entry.id not in made]
        self._positions[chunk.origin].carried = [*made, *kept][: self._size // 2]

    def state_dict(self) -> dict[str, Any]:
        positions = sorted(self._positions.items(), key=lambda item: strand_order(item[0]))
        return {"last": self._last, "positions": [[*strand, position.after, position.carried] for strand, position in positions]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._last = None if state["last"] is None else (state["last"][0], state["last"][1])
        self._positions = {(scope, key): _Position(after, list(carried)) for scope, key, after, carried in state["positions"]}

    def _fill(self, strand: StrandId, *, restart: bool) -> list[Entry]:
        members = self._strands[strand]
        position = self._positions.setdefault(strand, _Position())
        carried = [entry_id for entry_id in position.carried if self._bank.is_live(entry_id)]
        fresh = self._read(members, position.after, carried)
        if not fresh and not restart:
            return []
        if not fresh:
            carried = []
            fresh = self._read(members, 0, carried)
        if fresh:
            position.after = int(members.places[fresh[-1]])
        return [self._bank.entry(entry_id) for entry_id in [*carried, *members.ids[fresh].tolist()]]

    def _read(self, members: Members, after: int, carried: Sequence[int]) -> list[int]:
        """Which members are next."""
        fresh: list[int] = []
        for number in range(int(np.searchsorted(members.places, after, side="right")), len(members.ids)):
            if len(carried) + len(fresh) == self._size:
                break
            entry_id = int(members.ids[number])
            if self._bank.is_live(entry_id) and entry_id not in carried:
                fresh.append(number)
        return fresh


class Clusters:
    """The most redundant entry that was not read yet, with its near-duplicates, unread and nearest first; then the next.

    A cluster that was read comes again when it has gained an entry. One whose answer was not settled (an entry retired meanwhile, or the
    answer could not be read) is formed anew from what is left of it, `_ATTEMPTS` times in all.
    """

    def __init__(self, bank: Bank, near: NearDuplicates, size: int, tally: Tally) -> None:
        self._bank = bank
        self._near = near
        self._size = size
        self._tally = tally
        self._attempts: Counter[int] = Counter()  # by the entry a cluster was formed around

    def begin(self, strands: Strands) -> None:
        self._attempts = Counter({seed: number for seed, number in self._attempts.items() if self._bank.is_live(seed)})
        self._give_up()  # on what was asked about and never answered

    async def next(self, most: int) -> list[Chunk]:
        clusters = await asyncio.to_thread(self._form, most)
        self._tally.count("merge_retries", sum(seed in self._attempts for seed, _ in clusters))
        self._attempts.update(seed for seed, _ in clusters)
        return [Chunk(seed, tuple(self._bank.entry(entry_id) for entry_id in ids)) for seed, ids in clusters]

    def answered(self, chunk: Chunk, made: Sequence[int], *, settled: bool) -> None:
        assert isinstance(chunk.origin, int)
        if settled:
            del self._attempts[chunk.origin]
            self._near.mark_read(entry.id for entry in chunk.entries)
        else:
            self._give_up()

    def state_dict(self) -> dict[str, Any]:
        return {"attempts": sorted(self._attempts.items())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._attempts = Counter(dict(state["attempts"]))

    def _give_up(self) -> None:
        for seed in [seed for seed, number in self._attempts.items() if number >= _ATTEMPTS]:
            del self._attempts[seed]
            self._near.mark_read([seed])
            self._tally.count("merge_given_up")

    def _form(self, most: int) -> list[tuple[int, list[int]]]:
        """(the entry it is formed around, all of its entries by id) of every cluster. In a thread: it changes nothing."""
        taken: set[int] = set()
        clusters: list[tuple[int, list[int]]] = []
        for seed in self._near.unread():
            if len(clusters) == most:
                break
            if seed in taken or not self._bank.is_live(seed):
                continue
            free = [other for other in self._near.around(seed) if other not in taken and self._bank.is_live(other)]
            if free:
                ids = [seed, *free[: self._size - 1]]
                taken.update(ids)
                clusters.append((seed, sorted(ids)))
        return clusters
