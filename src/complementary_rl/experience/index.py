"""Exact nearest-neighbour search over unit vectors in memory, on snapshots that writers leave alone.

Rows lie in blocks. Removing is swap-with-last. A write to a row that a live snapshot sees first copies the row's block, so a search
multiplies without any lock while writers go on, and a writer pays for one block at most (1.5 MB at 384 dimensions).

Nothing approximate is faster on two cores at the sizes a bank has (see docs/bank.md), and nothing approximate is exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from complementary_rl.experience.embedding import Vectors

_TIE = 1e-4
"""Matrix products round differently with the shape of the matrix; candidates this close to the last place are compared again."""
_DECIMALS = 6
"""Similarities are rounded so that they do not depend on where a row lies, or on the batch a text was embedded in."""
_BLOCK = 1024
"""Rows of a block."""
_PRODUCTS = 2**22
"""Most similarities held at once, 16 MB: queries of a large batch are searched in portions."""
_PORTION = 128
"""Most queries at once: what is compared again has to fit the caches too."""
_STRIPES = 64
"""Similarities of which only the largest is looked at when the last place is estimated."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Nearest first: `ids` int64 [m] and their `similarity` (cosine) float64 [m]; equal similarities by ascending id."""

    ids: NDArray[np.int64]
    similarity: NDArray[np.float64]


@dataclass(slots=True)
class _Block:
    """Rows [capacity, d] and their ids. `born` is how many snapshots there had been: later ones see it."""

    vectors: Vectors
    ids: NDArray[np.int64]
    born: int

    def grown(self, capacity: int, born: int) -> "_Block":
        """A copy with room for `capacity` rows."""
        more = capacity - len(self.ids)
        vectors = np.concatenate([self.vectors, np.empty((more, self.vectors.shape[1]), dtype=np.float32)])
        return _Block(vectors, np.concatenate([self.ids, np.empty(more, dtype=np.int64)]), born)


class Snapshot:
    """An index as it was at one moment. Searching needs no lock; taking and releasing need the one that guards the index."""

    def __init__(self, index: "VectorIndex", number: int, blocks: Sequence[_Block], size: int) -> None:
        self._index = index
        self._blocks = blocks
        self.number = number
        self.size = size

    def release(self) -> None:
        """Let writers write in place again. Idempotent."""
        self._index.released(self)

    def search(self, queries: Vectors, top: int, floor: float = -1.0) -> list[Neighbours]:
        """The `top` nearest of each query [q, d] with at least `floor` similarity."""
        if not self.size:
            nothing = Neighbours(np.empty(0, dtype=np.int64), np.empty(0))
            return [nothing] * len(queries)
        portion = min(max(16, _PRODUCTS // self.size), _PORTION)
        found: list[Neighbours] = []
        for start in range(0, len(queries), portion):
            found += self._search(queries[start : start + portion], min(top, self.size), floor)
        return found

    def _search(self, queries: Vectors, top: int, floor: float) -> list[Neighbours]:
        rough = np.empty((len(queries), self.size), dtype=np.float32)
        for number, block in enumerate(self._blocks):
            begin = number * _BLOCK
            rows = block.vectors[: self.size - begin]
            np.matmul(queries, rows.T, out=rough[:, begin : begin + len(rows)])
        cut = np.full(len(queries), floor, dtype=np.float32)
        if top < self.size:
            np.maximum(cut, _last_places(rough, top), out=cut)
        # flatnonzero is five times as fast as nonzero on two axes.
        owner, row = np.divmod(np.flatnonzero(rough >= (cut - _TIE)[:, None]), self.size)
        by_row = np.argsort(row, kind="stable")
        owner, row = owner[by_row], row[by_row]
        vectors, ids = self._rows(row)
        # One reduction per row in double precision: its rounding knows nothing of the other rows.
        similarity = np.multiply(vectors, queries[owner], dtype=np.float64).sum(axis=1).round(_DECIMALS)
        order = np.lexsort((ids, -similarity, owner))
        owner, ids, similarity = owner[order], ids[order], similarity[order]
        place = np.arange(len(owner)) - np.searchsorted(owner, owner)
        kept = (place < top) & (similarity >= floor)
        ids, similarity = ids[kept], similarity[kept]
        ends = np.searchsorted(owner[kept], np.arange(len(queries) + 1)).tolist()
        return [Neighbours(ids[a:b], similarity[a:b]) for a, b in pairwise(ends)]

    def _rows(self, rows: NDArray[np.int64]) -> tuple[Vectors, NDArray[np.int64]]:
        """Vectors [m, d] and ids [m] of ascending rows."""
        vectors = np.empty((len(rows), self._blocks[0].vectors.shape[1]), dtype=np.float32)
        ids = np.empty(len(rows), dtype=np.int64)
        ends = np.searchsorted(rows, np.arange(len(self._blocks) + 1) * _BLOCK).tolist()
        for number, (block, (begin, end)) in enumerate(zip(self._blocks, pairwise(ends), strict=True)):
            if begin < end:
                inside = rows[begin:end] - number * _BLOCK
                np.take(block.vectors, inside, axis=0, out=vectors[begin:end], mode="clip")
                np.take(block.ids, inside, out=ids[begin:end], mode="clip")
        return vectors, ids


class VectorIndex:
    """Maps integer ids to unit vectors of d dimensions. Adding and removing cost O(d), searching O(n·d).

    Results depend on the content alone, not on the order in which it came, so that a rebuilt index answers bit for bit alike.
    Not thread-safe by itself, but for searching a snapshot.
    """

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._blocks: list[_Block] = []
        self._row_of: dict[int, int] = {}
        self._snapshots = 0
        self._live: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._row_of)

    def __contains__(self, vector_id: int) -> bool:
        return vector_id in self._row_of

    def add(self, vector_id: int, vector: Vectors) -> None:
        """`vector` is a unit vector [d]; the id must be new."""
        assert vector_id not in self._row_of
        self._write(len(self), vector_id, vector)

    def remove(self, vector_id: int) -> None:
        row = self._row_of.pop(vector_id)
        last = len(self)
        if row != last:
            block, place = self._blocks[last // _BLOCK], last % _BLOCK
            self._write(row, int(block.ids[place]), block.vectors[place])
        if last % _BLOCK == 0:
            self._blocks.pop()

    def snapshot(self) -> Snapshot:
        """The index as it is now, until `Snapshot.release`. Costs a pointer per block."""
        self._snapshots += 1
        self._live[self._snapshots] = len(self)
        return Snapshot(self, self._snapshots, tuple(self._blocks), len(self))

    def released(self, snapshot: Snapshot) -> None:
        """See `Snapshot.release`."""
        self._live.pop(snapshot.number, None)

    def search(self, queries: Vectors, top: int, floor: float = -1.0) -> list[Neighbours]:
        """`Snapshot.search` on the index as it is now."""
        snapshot = self.snapshot()
        try:
            return snapshot.search(queries, top, floor)
        finally:
            snapshot.release()

    def _write(self, row: int, vector_id: int, vector: Vectors) -> None:
        number, place = divmod(row, _BLOCK)
        if number == len(self._blocks):
            # The first block starts small: there may be many scopes with a few keys each.
            capacity = 16 if number == 0 else _BLOCK
            empty = np.empty((capacity, self._dimensions), dtype=np.float32)
            self._blocks.append(_Block(empty, np.empty(capacity, dtype=np.int64), self._snapshots))
        block = self._blocks[number]
        capacity = len(block.ids)
        if place == capacity:
            self._blocks[number] = block.grown(min(_BLOCK, 2 * capacity), self._snapshots)
        elif any(snapshot > block.born and row < size for snapshot, size in self._live.items()):
            self._blocks[number] = block.grown(capacity, self._snapshots)
        block = self._blocks[number]
        block.vectors[place] = vector
        block.ids[place] = vector_id
        self._row_of[vector_id] = row


def _last_places(rough: Vectors, top: int) -> Vectors:
    """A lower bound [q], close from below, of the `top`-th largest of each row of similarities [q, n].

    That of a row's stripes: the largest of every stripe are different similarities, and finding them is a pass at memory speed.
    """
    size = rough.shape[1]
    stripes = max(1, min(_STRIPES, size // (8 * top)))
    width = size // stripes
    largest = rough[:, : stripes * width].reshape(len(rough), stripes, width).max(axis=1) if stripes > 1 else rough
    bounds: Vectors = np.partition(largest, width - top, axis=1)[:, width - top]
    return bounds
