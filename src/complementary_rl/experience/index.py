"""Exact nearest-neighbour search over unit vectors in memory: a matrix that grows by doubling, with swap-with-last deletion.

Up to 100,000 rows nothing approximate is faster on two cores (see docs/bank.md), and nothing approximate is exact.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from complementary_rl.experience.embedding import Vectors

_TIE = 1e-4
"""Matrix products round differently with the shape of the matrix; candidates this close to the last place are compared again."""
_DECIMALS = 6
"""Similarities are rounded so that they do not depend on where a row lies, or on the batch a text was embedded in."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Nearest first: `ids` int64 [m] and their `similarity` (cosine) float64 [m]; equal similarities by ascending id."""

    ids: NDArray[np.int64]
    similarity: NDArray[np.float64]


class VectorIndex:
    """Maps integer ids to unit vectors of d dimensions. Adding and removing cost O(d), searching O(n·d) in one matrix product.

    Results depend on the content alone, not on the order in which it came, so that a rebuilt index answers bit for bit alike.
    """

    def __init__(self, dimensions: int) -> None:
        self._vectors: Vectors = np.empty((16, dimensions), dtype=np.float32)
        self._ids: NDArray[np.int64] = np.empty(16, dtype=np.int64)
        self._row_of: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._row_of)

    def __contains__(self, vector_id: int) -> bool:
        return vector_id in self._row_of

    def add(self, vector_id: int, vector: Vectors) -> None:
        """`vector` is a unit vector [d]; the id must be new."""
        assert vector_id not in self._row_of
        row = len(self)
        if row == len(self._ids):
            self._vectors = np.concatenate([self._vectors, np.empty_like(self._vectors)])
            self._ids = np.concatenate([self._ids, np.empty_like(self._ids)])
        self._vectors[row] = vector
        self._ids[row] = vector_id
        self._row_of[vector_id] = row

    def remove(self, vector_id: int) -> None:
        row = self._row_of.pop(vector_id)
        last = len(self)
        if row != last:
            self._vectors[row] = self._vectors[last]
            self._ids[row] = self._ids[last]
            self._row_of[int(self._ids[row])] = row

    def search(self, queries: Vectors, top: int, floor: float = -1.0) -> list[Neighbours]:
        """The `top` nearest of each query [q, d] with at least `floor` similarity."""
        size = len(self)
        rough = queries @ self._vectors[:size].T
        return [self._nearest(query, similarity, min(top, size), floor) for query, similarity in zip(queries, rough, strict=True)]

    def _nearest(self, query: Vectors, rough: Vectors, top: int, floor: float) -> Neighbours:
        if top == len(rough):
            rows = np.flatnonzero(rough >= floor - _TIE)
        else:
            last = np.partition(rough, len(rough) - top)[len(rough) - top]
            rows = np.flatnonzero(rough >= max(last, floor) - _TIE)
        # One reduction per row in double precision: its rounding knows nothing of the other rows.
        products = self._vectors[rows].astype(np.float64) * query.astype(np.float64)
        similarity = products.sum(axis=1).round(_DECIMALS)
        ids = self._ids[rows]
        order = np.lexsort((ids, -similarity))[:top]
        order = order[similarity[order] >= floor]
        return Neighbours(ids[order], similarity[order])
