"""The keys nearest to queries, searched in the scopes of a bank as they were at one moment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat

from complementary_rl.experience.embedding import Vectors
from complementary_rl.experience.index import Snapshot


@dataclass(slots=True)
class NearKeys:
    """Keys near to one query as (scope, key id), with their cosine; nearest first."""

    keys: list[tuple[str, int]] = field(default_factory=list)
    cosines: list[float] = field(default_factory=list)

    def ordered(self) -> "NearKeys":
        """Nearest first; equal ones as they are."""
        order = sorted(range(len(self.keys)), key=lambda place: -self.cosines[place])
        return NearKeys([self.keys[place] for place in order], [self.cosines[place] for place in order])


class KeySnapshot:
    """Snapshots of the indexes of some scopes. Searching needs no lock."""

    def __init__(self, scopes: Mapping[str, Snapshot]) -> None:
        self._scopes = scopes

    def release(self) -> None:
        """Under the bank's lock, when searching is over."""
        for snapshot in self._scopes.values():
            snapshot.release()

    def search(self, queries: Vectors, scopes: Sequence[str], tops: Sequence[int], *, floor: float) -> list[NearKeys]:
        """For every query [q, d] at least the `tops` nearest keys of its scope, if it has as many with `floor` similarity."""
        results = [NearKeys() for _ in scopes]
        for scope in dict.fromkeys(scopes):
            self._search(queries, [i for i, name in enumerate(scopes) if name == scope], scope, tops, floor, results)
        return results

    def search_elsewhere(self, queries: Vectors, own: Sequence[str | None], tops: Sequence[int], *, floor: float) -> list[NearKeys]:
        """As `search`, in all scopes of the snapshot but each query's own (None: in all)."""
        results = [NearKeys() for _ in own]
        for scope in sorted(self._scopes):
            self._search(queries, [i for i, name in enumerate(own) if name != scope], scope, tops, floor, results)
        return [near_keys.ordered() for near_keys in results]

    def _search(
        self, queries: Vectors, members: list[int], scope: str, tops: Sequence[int], floor: float, results: list[NearKeys]
    ) -> None:
        """Append to the results of `members` what one scope has."""
        snapshot = self._scopes.get(scope)
        if snapshot is None or not members:
            return
        found = snapshot.search(queries[members], max(tops[i] for i in members), floor)
        for i, near in zip(members, found, strict=True):
            results[i].keys += zip(repeat(scope), near.ids.tolist(), strict=False)
            results[i].cosines += near.similarity.tolist()
