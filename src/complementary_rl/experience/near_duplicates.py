"""Near-duplicates among the live entries of a bank, kept up as it changes.

Entries are near-duplicates when they are of one strand and alike: by the cosine of their texts; among entries that are alone under their
key by the mean of the cosines of texts and of keys, for the same words about another task say something else.

Only the *number* of an entry's near-duplicates is kept, so that the memory is that of the vectors however alike the entries are. An entry
that comes or goes costs one exact search of its strand. All of it depends on what the bank holds alone: after a resume it is counted again.
"""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from complementary_rl.experience.bank import Bank
from complementary_rl.experience.embedding import Vectors
from complementary_rl.experience.index import VectorIndex
from complementary_rl.experience.strands import StrandId, Strands

_PORTION = 32
"""Entries taken in or out at a time, about a millisecond of the interpreter's lock; others have a turn between."""
_MANY = 256
"""Entries with more near-duplicates than this are searched for one by one, which bounds what a search holds in memory."""

_Home = tuple[StrandId, int]
"""(strand, entry id)."""


class NearDuplicates:
    """Counts, for every entry that belongs to a strand, the others in it with at least `similarity`.

    An entry that an extractor has looked at beside its near-duplicates is *read*, and `unread` names it no more.
    """

    def __init__(self, bank: Bank, similarity: float) -> None:
        self._bank = bank
        self._similarity = similarity
        self._indexes: dict[StrandId, VectorIndex] = {}
        self._vectors: dict[int, Vectors] = {}
        self._strand_of: dict[int, StrandId] = {}
        self._number: NDArray[np.int64] = np.zeros(64, dtype=np.int64)  # by entry id
        self._read: set[int] = set()

    async def update(self, strands: Strands) -> None:
        """Take note of what came and went. The work is done in a thread, a portion at a time."""
        gone, new = await asyncio.to_thread(self._difference, strands)
        for start in range(0, len(gone), _PORTION):
            await asyncio.to_thread(self._remove, gone[start : start + _PORTION])
        for start in range(0, len(new), _PORTION):
            await asyncio.to_thread(self._add, new[start : start + _PORTION])

    def share(self) -> float:
        """Entries that have near-duplicates, among all live ones."""
        return int(np.count_nonzero(self._number)) / max(1, len(self._bank))

    def unread(self) -> list[int]:
        """Entries that have near-duplicates and were not read beside them: the most redundant first, among equals the oldest."""
        ids = np.flatnonzero(self._number)
        ids = ids[np.argsort(-self._number[ids], kind="stable")]
        return [entry_id for entry_id in ids.tolist() if entry_id not in self._read]

    def around(self, entry_id: int) -> list[int]:
        """The near-duplicates of an entry of `unread`: unread ones first, then the nearest, then the oldest."""
        index = self._indexes[self._strand_of[entry_id]]
        found = index.search(self._vectors[entry_id][None], len(index), self._similarity)[0].ids.tolist()
        return sorted((other for other in found if other != entry_id), key=lambda other: other in self._read)

    def mark_read(self, ids: Iterable[int]) -> None:
        self._read.update(ids)

    def state_dict(self) -> list[int]:
        """What was read: the rest is counted again."""
        return sorted(self._read)

    def load_state_dict(self, state: Sequence[int]) -> None:
        self._read = set(state)

    def _difference(self, strands: Strands) -> tuple[list[_Home], list[_Home]]:
        """What went and what came, by strand; an entry whose strand is another now did both."""
        home = {entry_id: strand for strand, members in strands.items() for entry_id in members.ids.tolist()}
        self._read = self._read & home.keys()  # a new set: others may be reading this one
        new = [(strand, entry_id) for entry_id, strand in home.items() if self._strand_of.get(entry_id) != strand]
        gone: dict[StrandId, list[_Home]] = {}
        for entry_id, strand in self._strand_of.items():
            if home.get(entry_id) != strand:
                gone.setdefault(strand, []).append((strand, entry_id))
        return [member for members in gone.values() for member in members], new

    def _remove(self, members: Sequence[_Home]) -> None:
        for strand, group in groupby(members, key=lambda member: member[0]):
            ids = [entry_id for _, entry_id in group]
            index = self._indexes[strand]
            for entry_id in ids:
                index.remove(entry_id)
                del self._strand_of[entry_id]
            self._number[ids] = 0
            vectors = np.stack([self._vectors.pop(entry_id) for entry_id in ids])
            if not len(index):
                del self._indexes[strand]
                continue
            for near in self._near(index, vectors):
                self._number[near] -= 1

    def _add(self, members: Sequence[_Home]) -> None:
        texts, keys = self._bank.vectors([entry_id for _, entry_id in members])
        pairs: Vectors = (np.concatenate([texts, keys], axis=1) / np.sqrt(2)).astype(np.float32)
        newest = max(entry_id for _, entry_id in members)
        if newest >= len(self._number):
            self._number = np.concatenate([self._number, np.zeros(newest + 1, dtype=np.int64)])
        first = 0
        for strand, group in groupby(members, key=lambda member: member[0]):
            ids = [entry_id for _, entry_id in group]
            vectors = (pairs if strand[1] is None else texts)[first : first + len(ids)]
            first += len(ids)
            index = self._indexes.setdefault(strand, VectorIndex(vectors.shape[1]))
            for entry_id, vector in zip(ids, vectors, strict=True):
                index.add(entry_id, vector)
                self._vectors[entry_id] = vector
                self._strand_of[entry_id] = strand
            found = self._near(index, vectors)
            for near in found:
                self._number[near] += 1
            self._number[ids] = [np.count_nonzero(near != entry_id) for entry_id, near in zip(ids, found, strict=True)]

    def _near(self, index: VectorIndex, vectors: Vectors) -> list[NDArray[np.int64]]:
        """The ids of all rows that are similar enough to each of `vectors`."""
        return [
            near.ids if len(near.ids) < _MANY else index.search(vector[None], len(index), self._similarity)[0].ids
            for vector, near in zip(vectors, index.search(vectors, _MANY, self._similarity), strict=True)
        ]
