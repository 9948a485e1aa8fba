"""Exact nearest-neighbour search over unit vectors in memory, on snapshots that writers leave alone.

Rows lie in blocks. Removing is swap-with-last. A write to a row that a live snapshot sees first copies the row's block, so a search
multiplies without any lock while writers go on, and a writer pays for one block at most (1.5 MB at 384 dimensions).

Nothing approximate is faster on two cores at the sizes a bank has (see docs/bank.md), and nothing approximate is exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from complementary_rl.experience.embedding import Vectors

_TIE = 1e-4
"""Matrix products round differently with the shape of the matrix; candidates this close to the last place are compared again."""
_DECIMALS = 6
"""Similarities are rounded so that they do not depend on where a row lies, or on the batch a text was embedded in."""
_BLOCK = 1024
"""Rows of a block."""
_PORTION = 512
"""Most queries at once: their similarities to a block have to stay in the cache (2 MB), and a product of fewer is slower by the query."""
_COMPARED = 2**18
"""Most candidates compared again at once, about: a search for very many neighbours takes its queries in smaller portions."""
_STRIPE = 64
"""Most rows of which only the largest similarity is looked at when the last place is estimated."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Nearest first: `ids` int64 [m] and their `similarity` (cosine) float64 [m]; equal similarities by ascending id."""

    ids: NDArray[np.int64]
    similarity: NDArray[np.float64]


class Found(Sequence[Neighbours]):
    """The neighbours of q queries, one after the other: whose they are, `owner` int64 [n], ascending; `ids` and `similarity` [n]."""

    def __init__(self, number: int, owner: NDArray[np.int64], ids: NDArray[np.int64], similarity: NDArray[np.float64]) -> None:
        self.owner, self.ids, self.similarity = owner, ids, similarity
        self._ends = np.searchsorted(owner, np.arange(number + 1)).tolist()

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, number: int) -> Neighbours: ...
    @overload
    def __getitem__(self, number: slice) -> list[Neighbours]: ...
    def __getitem__(self, number: int | slice) -> Neighbours | list[Neighbours]:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        part = slice(self._ends[number], self._ends[number + 1])
        return Neighbours(self.ids[part], self.similarity[part])


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

    def search(self, queries: Vectors, top: int, floor: float = -1.0) -> Found:
        """The `top` nearest of each query [q, d] with at least `floor` similarity."""
        top = min(top, self.size)
        portion = min(_PORTION, max(16, _COMPARED // max(top, 1)))
        starts = range(0, len(queries), portion) if top > 0 else ()
        parts = [self._search(queries[start : start + portion], top, floor) for start in starts]
        owners = [owner + start for start, (owner, _, _) in zip(starts, parts, strict=True)]
        nothing = np.empty(0, dtype=np.int64)
        return Found(
            len(queries),
            np.concatenate([nothing, *owners]),
            np.concatenate([nothing, *(ids for _, ids, _ in parts)]),
            np.concatenate([np.empty(0), *(similarity for _, _, similarity in parts)]),
        )

    def _search(self, queries: Vectors, top: int, floor: float) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Owner, ids and similarity of the neighbours."""
        parts = []
        for block, places in zip(self._blocks, self._candidates(queries, top, floor), strict=True):
            row, owner = np.divmod(places, len(queries))
            # One reduction per row in double precision: its rounding knows nothing of the other rows.
            exact = np.multiply(block.vectors[row], queries[owner], dtype=np.float64).sum(axis=1).round(_DECIMALS)
            parts.append((owner, block.ids[row], exact))
        owner, ids, similarity = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.lexsort((ids, -similarity, owner))
        owner, ids, similarity = owner[order], ids[order], similarity[order]
        place = np.arange(len(owner)) - np.searchsorted(owner, owner)
        kept = (place < top) & (similarity >= floor)
        return owner[kept], ids[kept], similarity[kept]

    def _candidates(self, queries: Vectors, top: int, floor: float) -> list[NDArray[np.int64]]:
        """For each block the places, row · q + query, of all that may be among the `top` nearest of a query.

        The bound rises as blocks are seen, from the largest similarities of stripes of rows, which are different ones.
        """
        turned = np.ascontiguousarray(queries.T)
        similarities = np.empty((min(_BLOCK, self.size), len(queries)), dtype=np.float32)
        bound = np.full(len(queries), floor - _TIE, dtype=np.float32)
        stripe = max(1, min(_STRIPE, self.size // (8 * top)))
        largest: list[Vectors] = []
        found = []
        for number, block in enumerate(self._blocks):
            rows = block.vectors[: self.size - number * _BLOCK]
            product = np.matmul(rows, turned, out=similarities[: len(rows)])
            striped = len(rows) // stripe * stripe
            largest.append(product[:striped].reshape(stripe, -1, len(queries)).max(axis=0))
            seen = number + 1
            if seen & number == 0 or seen == len(self._blocks):  # after 1, 2, 4, … blocks, and at the end
                np.maximum(bound, _last_places(np.concatenate(largest), top) - _TIE, out=bound)
            places = np.flatnonzero(product >= bound)
            found.append((places, product.ravel()[places]))
        return [places[similarity >= bound[places % len(queries)]] for places, similarity in found]


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

    def search(self, queries: Vectors, top: int, floor: float = -1.0) -> Found:
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


def _last_places(similarities: Vectors, top: int) -> Vectors:
    """The `top`-th largest of each column of similarities [n, q]; −1 where there are fewer."""
    if len(similarities) < top:
        return np.full(similarities.shape[1], -1.0, dtype=np.float32)
    by_query = np.ascontiguousarray(similarities.T)
    places: Vectors = np.partition(by_query, len(similarities) - top, axis=1)[:, len(similarities) - top]
    return places
