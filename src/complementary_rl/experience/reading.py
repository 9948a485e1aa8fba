"""The reading side of a bank: its entries, its log and what it counts, and copies of all of it. Nothing here changes anything."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from complementary_rl.errors import BankError
from complementary_rl.experience import filing, jsonl, parquet, replay, transfer
from complementary_rl.experience.embedding import CachedEmbedder, Vectors
from complementary_rl.experience.records import SELECT_ENTRIES, LogRecord, entry_from_row, generation_from_row, storable
from complementary_rl.experience.routing import Route
from complementary_rl.experience.state import WRITING_KINDS, BankState
from complementary_rl.types import Entry, Generation


class BankReader:
    """What an open bank can be asked. Safe to use from several threads."""

    def __init__(self, state: BankState, embedder: CachedEmbedder) -> None:
        self.embedder = embedder
        self._state = state

    def __len__(self) -> int:
        """Live entries."""
        return len(self._state.live)

    def is_live(self, entry_id: int) -> bool:
        return entry_id in self._state.live

    def entry(self, entry_id: int) -> Entry:
        """An entry, live or retired. Raises BankError when there never was one of this id."""
        with self._state.lock:
            rows = self._state.store.rows(f"{SELECT_ENTRIES} WHERE e.id = ?", (entry_id,))
        if not rows:
            raise BankError(f"the bank has no entry {entry_id}; list them with `crl bank ls`")
        return entry_from_row(rows[0])

    def entries(self, *, live_only: bool = True, scope: str | None = None, key_text: str | None = None) -> list[Entry]:
        """Entries in order of id."""
        conditions = ["e.retired_step IS NULL"] if live_only else ["1"]
        values: list[str] = []
        if scope is not None:
            conditions.append("e.scope = ?")
            values.append(scope)
        if key_text is not None:
            conditions.append("e.key_id = (SELECT id FROM keys WHERE text = ?)")
            values.append(storable(key_text))
        with self._state.lock:
            rows = self._state.store.rows(f"{SELECT_ENTRIES} WHERE {' AND '.join(conditions)} ORDER BY e.id", values)
        return [entry_from_row(row) for row in rows]

    def filed(self) -> Iterator[tuple[int, str, int]]:
        """(entry id, scope, number of its key) of the live entries, in order of id. The lock is let go every few hundred of them, so
        what is written meanwhile may or may not be among them."""
        return filing.filed(self._state)

    def vectors(self, ids: Sequence[int]) -> tuple[Vectors, Vectors]:
        """The unit vectors of entries' texts and of their keys, both [len(ids), d]. Texts are embedded outside the lock. The ids must
        be known; a thousand at most."""
        return filing.vectors(self._state, self.embedder, ids)

    def writers(self, entry_id: int) -> list[str]:
        """The generations that wrote an entry's text: its author, then those whose duplicates became votes, oldest first."""
        with self._state.lock:
            rows = self._state.store.rows("SELECT generation_id FROM writers WHERE entry_id = ? ORDER BY operation_id", (entry_id,))
        return [generation_id for (generation_id,) in rows]

    def routes(self, entry_id: int) -> list[Route]:
        """What an entry did to rollouts of other scopes than its own, by scope, and where it is no longer offered."""
        with self._state.lock:
            return self._state.routing.routes(entry_id)

    def generations(self, ids: Sequence[str]) -> list[Generation]:
        """Recorded generations, in the order asked for. Raises KeyError for one that was never recorded."""
        with self._state.lock:
            marks = ", ".join("?" * len(ids))
            rows = self._state.store.rows(f"SELECT * FROM generations WHERE id IN ({marks})", list(ids))
        found = {row[0]: generation_from_row(row) for row in rows}
        return [found[generation_id] for generation_id in ids]

    def recorded(self, ids: Iterable[str]) -> set[str]:
        """Those of these generations that were recorded."""
        with self._state.lock:
            return {name for name in ids if self._state.store.rows("SELECT 1 FROM generations WHERE id = ?", (name,))}

    @property
    def last_step(self) -> int:
        """The newest step that anything was logged at."""
        with self._state.lock:
            return self._state.clock

    def log(self, limit: int) -> list[LogRecord]:
        """The newest `limit` operations, oldest first."""
        with self._state.lock:
            return replay.newest(self._state.store, limit)

    def history(self, entry_id: int) -> list[LogRecord]:
        """Every operation on an entry, its ancestors and its descendants, oldest first."""
        with self._state.lock:
            return replay.history(self._state.store, entry_id)

    def rebuild(self, step: int) -> list[Entry]:
        """The live entries and their statistics as they were at the end of `step`, from the log; in order of id."""
        with self._state.lock, self._state.store.snapshot():
            return replay.rebuild(self._state.store, step)

    def counts(self) -> dict[str, float]:
        """`size`, `keys`; operations since the bank was made by kind (`add`, `update`, `merge`, `vote`, `drop`, `evict`, `return`,
        `refuse`, `revert`), refusals by cause (`refused_…`), texts `cut` off and updates whose target was `gone`;
        `duplicate_share` (votes among texts taken), `never_used_share` (live entries never retrieved) and `routing_blocked` (pairs of
        a live entry and another scope where it is no longer offered)."""
        with self._state.lock:
            taken = sum(self._state.counters[kind] for kind in WRITING_KINDS) + self._state.counters["vote"]
            return {
                "size": len(self),
                "keys": self._state.live.shelf_count(),
                **self._state.counters,
                "duplicate_share": self._state.counters["vote"] / max(1, taken),
                "never_used_share": self._state.live.never_retrieved() / max(1, len(self)),
                "routing_blocked": sum(entry_id in self._state.live for entry_id, _ in self._state.routing.pairs()),
            }

    # --- copies ------------------------------------------------------------------------------------------------------------------

    def checkpoint_to(self, path: Path) -> None:
        """Copy the bank to `path`, synced to disk; `restore` brings it back."""
        with self._state.lock:
            self._state.store.backup(path)

    def export_jsonl(self, destination: Path) -> int:
        """Write everything as JSON lines; returns the number of rows."""
        with self._state.lock:
            return transfer.export_bank(self._state.store, destination, jsonl)

    def export_parquet(self, destination: Path) -> int:
        """Write everything as a folder of Parquet files, which must not exist; returns the number of rows. Raises UserError where
        pyarrow is missing."""
        with self._state.lock:
            return transfer.export_bank(self._state.store, destination, parquet)
