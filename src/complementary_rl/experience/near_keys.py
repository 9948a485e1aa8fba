"""The keys nearest to queries, searched in the scopes of a bank as they were at one moment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from complementary_rl.experience.embedding import Vectors
from complementary_rl.experience.index import Found, Snapshot


@dataclass(frozen=True, slots=True)
class NearKeys:
    """Keys near to `number` queries, one query after the other: whose they are, `owner` int64 [n], their scope as a place in `scopes`
    [n], `ids` [n] and `cosines` float64 [n]; nearest first."""

    number: int
    scopes: Sequence[str]
    owner: NDArray[np.int64]
    scope: NDArray[np.int64]
    ids: NDArray[np.int64]
    cosines: NDArray[np.float64]


class KeySnapshot:
    """Snapshots of the indexes of some scopes. Searching needs no lock."""

    def __init__(self, scopes: Mapping[str, Snapshot]) -> None:
        self._scopes = scopes

    def release(self) -> None:
        """Under the bank's lock, when searching is over."""
        for snapshot in self._scopes.values():
            snapshot.release()

    def search(self, queries: Vectors, scopes: Sequence[str], tops: Sequence[int], *, floor: float) -> NearKeys:
        """For every query [q, d] at least the `tops` nearest keys of its scope, if it has as many with `floor` similarity."""
        members = {scope: [i for i, name in enumerate(scopes) if name == scope] for scope in dict.fromkeys(scopes)}
        return self._search(queries, members, tops, floor)

    def search_elsewhere(self, queries: Vectors, own: Sequence[str | None], tops: Sequence[int], *, floor: float) -> NearKeys:
        """As `search`, in all scopes of the snapshot but each query's own (None: in all)."""
        members = {scope: [i for i, name in enumerate(own) if name != scope] for scope in sorted(self._scopes)}
        return self._search(queries, members, tops, floor)

    def _search(self, queries: Vectors, members: Mapping[str, Sequence[int]], tops: Sequence[int], floor: float) -> NearKeys:
        """Search every scope for its `members`, queries by number."""
        names = [scope for scope, numbers in members.items() if numbers and scope in self._scopes]
        found: list[Found] = []
        for name in names:
            numbers = members[name]
            some = queries if len(numbers) == len(queries) else queries[numbers]
            found.append(self._scopes[name].search(some, max(tops[i] for i in numbers), floor))
        nothing = np.empty(0, dtype=np.int64)
        owner = np.concatenate([nothing, *(np.array(members[name])[near.owner] for name, near in zip(names, found, strict=True))])
        scope = np.repeat(np.arange(len(names)), [len(near.ids) for near in found])
        ids = np.concatenate([nothing, *(near.ids for near in found)])
        cosines = np.concatenate([np.empty(0), *(near.similarity for near in found)])
        if len(names) > 1:
            order = np.lexsort((-cosines, owner))  # equal ones as they are, by scope
            owner, scope, ids, cosines = owner[order], scope[order], ids[order], cosines[order]
        return NearKeys(len(queries), names, owner, scope, ids, cosines)
