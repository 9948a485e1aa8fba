"""What retrieval needs of the live entries, in memory: their counters as columns, their keys in one vector index per scope.

    scope → VectorIndex over keys → shelf (the entries filed under that key in that scope) → slots → columns

Texts and tokens stay on disk. All of it is rebuilt from the store when a bank is opened. Entries of one task have one key, so the
index holds a row per *key*: searching costs what the number of different tasks costs, and equal similarities are known to be equal.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import chain, compress

import numpy as np
from numpy.typing import NDArray

from complementary_rl.experience.embedding import Vectors
from complementary_rl.experience.index import VectorIndex
from complementary_rl.experience.near_keys import KeySnapshot, NearKeys
from complementary_rl.experience.posterior import Posterior
from complementary_rl.types import EntryStats

Ints = NDArray[np.int64]

_COLUMNS = ("ids", "retrieved", "shown", "successes", "failures", "votes", "last_retrieved", "created", "position")


@dataclass(frozen=True, slots=True)
class Candidates:
    """A pool of n live entries, in canonical order: most similar first, among equals the newest. Every array has shape [n]."""

    ids: Ints
    similarity: NDArray[np.float64]
    retrieved: Ints
    shown: Ints
    successes: Ints
    failures: Ints
    votes: Ints
    last_retrieved: Ints

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, places: Ints) -> "Candidates":
        """The candidates at `places`."""
        return Candidates(*(getattr(self, field.name)[places] for field in fields(self)))


class Pools:
    """The pools of several queries, one after the other: their `candidates` [n], and their `sizes` [q]."""

    def __init__(self, candidates: Candidates, sizes: Ints) -> None:
        self.candidates = candidates
        self.sizes = sizes
        self.starts: Ints = np.cumsum(sizes) - sizes
        self.owner: Ints = np.repeat(np.arange(len(sizes)), sizes)

    def part(self, number: int) -> slice:
        """Where the candidates of a pool are."""
        return slice(int(self.starts[number]), int(self.starts[number] + self.sizes[number]))

    def take(self, numbers: Sequence[int]) -> "Pools":
        """Pools by number, in any order and any number of times."""
        chosen = np.array(numbers, dtype=np.int64)
        if np.array_equal(chosen, np.arange(len(self.sizes))):
            return self
        sizes = self.sizes[chosen]
        inside = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return Pools(self.candidates.take(np.repeat(self.starts[chosen], sizes) + inside), sizes)

    def keep(self, kept: NDArray[np.bool_]) -> "Pools":
        """Without the candidates that are not `kept` [n]."""
        sizes = np.bincount(self.owner[kept], minlength=len(self.sizes))
        return Pools(self.candidates.take(np.flatnonzero(kept)), sizes)


class LiveEntries:
    """The live entries of a bank. Every operation is O(1) in the number of entries, but for eviction, O(log n)."""

    def __init__(self, dimensions: int, eviction: str, posterior: Posterior) -> None:
        self._dimensions = dimensions
        self._table = {name: np.zeros(64, dtype=np.int64) for name in _COLUMNS}
        self._free: list[int] = []
        self._used = 0
        self._slots: dict[int, int] = {}
        self._home: dict[int, tuple[str, int]] = {}
        self._shelves: dict[str, dict[int, list[int]]] = {}
        self._indexes: dict[str, VectorIndex] = {}
        self._eviction = eviction
        self._posterior = posterior
        self._queue: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, entry_id: int) -> bool:
        return entry_id in self._slots

    def add(self, entry_id: int, scope: str, key_id: int, vector: Vectors, created: int, stats: EntryStats) -> None:
        """File an entry under a key whose vector is `vector`."""
        if self._free:
            slot = self._free.pop()
        else:
            slot = self._used
            self._used += 1
            if slot == len(self._table["ids"]):
                self._table = {name: np.concatenate([column, np.zeros_like(column)]) for name, column in self._table.items()}
        index = self._indexes.setdefault(scope, VectorIndex(self._dimensions))
        if key_id not in index:
            index.add(key_id, vector)
        shelf = self._shelves.setdefault(scope, {}).setdefault(key_id, [])
        counts = (stats.retrieved, stats.shown, stats.successes, stats.failures, stats.votes, stats.last_retrieved_step)
        row = (entry_id, *counts, created, len(shelf))
        for name, value in zip(_COLUMNS, row, strict=True):
            self._table[name][slot] = value
        shelf.append(slot)
        self._slots[entry_id] = slot
        self._home[entry_id] = (scope, key_id)
        self._enqueue(slot, entry_id)

    def home(self, entry_id: int) -> tuple[str, int]:
        """Scope and key id of a live entry."""
        return self._home[entry_id]

    def remove(self, entry_id: int) -> None:
        slot = self._slots.pop(entry_id)
        scope, key_id = self._home.pop(entry_id)
        shelf = self._shelves[scope][key_id]
        position = int(self._table["position"][slot])
        last = shelf.pop()
        if last != slot:
            shelf[position] = last
            self._table["position"][last] = position
        self._free.append(slot)
        if not shelf:
            del self._shelves[scope][key_id]
            self._indexes[scope].remove(key_id)
            if not len(self._indexes[scope]):
                del self._indexes[scope], self._shelves[scope]

    def count_retrieved(self, entry_id: int, step: int, times: int) -> None:
        """Entries that have left are ignored."""
        slot = self._slots.get(entry_id)
        if slot is None:
            return
        self._table["retrieved"][slot] += times
        self._table["last_retrieved"][slot] = max(step, int(self._table["last_retrieved"][slot]))
        if self._eviction == "lru":
            self._enqueue(slot, entry_id)

    def count_outcome(self, entry_id: int, success: bool | None) -> None:
        """None: the rollout was lost. Entries that have left are ignored."""
        slot = self._slots.get(entry_id)
        if slot is None:
            return
        self._table["shown"][slot] += 1
        if success is not None:
            self._table["successes" if success else "failures"][slot] += 1
            if self._eviction == "value":
                self._enqueue(slot, entry_id)

    def count_vote(self, entry_id: int) -> None:
        """Another generation wrote the text of a live entry."""
        slot = self._slots[entry_id]
        self._table["votes"][slot] += 1
        if self._eviction == "value":
            self._enqueue(slot, entry_id)

    def next_to_evict(self) -> int:
        """The entry the policy gives up first; ties go by age. The bank must not be empty.

        fifo: the oldest. lru: the one whose last retrieval (or birth, if never retrieved) is longest ago. value: the worst
        posterior mean.
        """
        while True:
            worth, entry_id = self._queue[0]
            slot = self._slots.get(entry_id)
            if slot is not None and self._worth(slot) == worth:
                return entry_id
            heapq.heappop(self._queue)

    def shelf_count(self) -> int:
        """Keys that live entries are filed under, scope by scope."""
        return sum(map(len, self._shelves.values()))

    def never_retrieved(self) -> int:
        """Live entries that no retrieval has taken yet."""
        slots = np.fromiter(self._slots.values(), dtype=np.int64, count=len(self))
        return int(np.count_nonzero(self._table["retrieved"][slots] == 0))

    def snapshot(self, scopes: Iterable[str] | None) -> KeySnapshot:
        """The keys of some scopes (None: of all) as they are now. Release it, or every write goes on copying."""
        names = self._indexes if scopes is None else self._indexes.keys() & set(scopes)
        return KeySnapshot({scope: self._indexes[scope].snapshot() for scope in names})

    def pools(self, keys: NearKeys, sizes: Sequence[int]) -> Pools:
        """For the keys of every query the entries filed under its nearest, at least `sizes` [q] of them if there are as many.

        Shelves are not split: a pool holds more than asked for when that many entries are as near as its last one. Keys that have
        left since they were found are passed over.
        """
        near, owner = keys.cosines, keys.owner
        tables = [self._shelves.get(scope, {}) for scope in keys.scopes]
        shelves = [tables[scope].get(key_id, ()) for scope, key_id in zip(keys.scope.tolist(), keys.ids.tolist(), strict=True)]
        lengths = np.fromiter(map(len, shelves), dtype=np.int64, count=len(shelves))
        before = np.cumsum(lengths) - lengths
        before -= before[np.searchsorted(owner, owner)] if len(owner) else 0
        wanted = np.array(sizes, dtype=np.int64)[owner]
        last = np.full(keys.number, np.nan)
        filling = (before < wanted) & (before + lengths >= wanted)
        last[owner[filling]] = near[filling]
        used = (before < wanted) | (near == last[owner])
        slots = np.fromiter(chain.from_iterable(compress(shelves, used.tolist())), dtype=np.int64)
        near, owner = np.repeat(near[used], lengths[used]), np.repeat(owner[used], lengths[used])
        order = np.lexsort((-self._table["ids"][slots], -near, owner))
        slots = slots[order]
        ids, *columns = (self._table[name][slots] for name in _COLUMNS[:7])
        return Pools(Candidates(ids, near[order], *columns), np.bincount(owner, minlength=keys.number))

    def _worth(self, slot: int) -> float:
        if self._eviction == "value":
            successes, failures, votes = (float(self._table[name][slot]) for name in ("successes", "failures", "votes"))
            return self._posterior.mean(successes, failures, votes)
        if self._eviction == "lru":
            return float(max(self._table["created"][slot], self._table["last_retrieved"][slot]))
        return 0.0

    def _enqueue(self, slot: int, entry_id: int) -> None:
        """Queue an entry at its present worth. What it was queued at before is passed over when it comes up."""
        heapq.heappush(self._queue, (self._worth(slot), entry_id))
        if len(self._queue) > 4 * len(self) + 64:
            self._queue = [(self._worth(slot), entry_id) for entry_id, slot in self._slots.items()]
            heapq.heapify(self._queue)
