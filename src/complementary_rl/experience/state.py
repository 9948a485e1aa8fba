"""The writing side of the bank: its transactions, its operation log, and how one text becomes an entry, a vote or a refusal.

File and memory change together: what a transaction did in memory is read again from the file when it is undone.
"""

import json
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from complementary_rl.config import BankConfig
from complementary_rl.errors import BankError
from complementary_rl.experience.duplicates import Duplicates
from complementary_rl.experience.embedding import Embedder, Vectors, vector_from_blob, vector_to_blob
from complementary_rl.experience.junk import Junk, JunkFilter
from complementary_rl.experience.live import LiveEntries
from complementary_rl.experience.near_keys import KeySnapshot
from complementary_rl.experience.posterior import Posterior
from complementary_rl.experience.records import SELECT_LIVE, STATS, combined, fingerprint, storable
from complementary_rl.experience.routing import Routing
from complementary_rl.experience.store import BankStore
from complementary_rl.types import EntryStats

WRITING_KINDS = ("add", "update", "merge")
KINDS = (*WRITING_KINDS, "vote", "refuse", "return", "drop", "evict", "revert")

Cause = Literal["short", "conflict"] | Junk
"""Why a text is refused: under `min_chars`; what it should replace is gone; or junk, and of which kind."""

_JUNK: dict[Junk, str] = {
    "boilerplate": "it says nothing",
    "repetition": "it repeats itself",
    "restates_task": "it restates the task",
}
REFUSALS = tuple(f"refused_{cause}" for cause in ("short", "conflict", *_JUNK))
"""Their counters."""
_QUOTED = 200
"""Characters of a junk text that the log keeps."""


@dataclass(frozen=True, slots=True)
class Added:
    """What became of a text. "added": `entry_id` is new. "duplicate": it is the live entry that got a vote. "refused": None, and
    `reason` says why, and `cause` in one word."""

    entry_id: int | None
    outcome: Literal["added", "duplicate", "refused"]
    reason: str = ""
    cause: Cause | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """A text on its way into the bank. `retire` are the live entries it replaces."""

    kind: Literal["add", "update", "merge"]
    text: str
    key_text: str
    scope: str
    generation_id: str | None
    parents: Sequence[int] = ()
    retire: Sequence[int] = ()


class BankState:
    """The store and everything in memory that mirrors it. `lock` guards all of it; whoever reads holds it too, but for a `snapshot`.

    `posterior` ranks entries for eviction by value.
    """

    def __init__(self, store: BankStore, config: BankConfig, embedder: Embedder, dimensions: int, posterior: Posterior) -> None:
        self.store = store
        self.lock = threading.RLock()
        self._config = config
        self._embedder = embedder
        self._dimensions = dimensions
        self._posterior = posterior
        self._duplicates = Duplicates(store, embedder, config.duplicate_similarity)
        self._junk = JunkFilter(config.boilerplate) if config.junk_filter and not store.read_only else None
        self._in_transaction = False
        self._failed: BaseException | None = None
        self.counters: Counter[str] = Counter()
        self.clock = 0
        if store.read_only:
            with store.transaction():  # one consistent view, whoever writes
                self._load()
        else:
            self._load()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; transactions inside join the outermost one. An exception that leaves an inner one dooms the whole, even
        if it is caught further out: half an operation must not be kept."""
        with self.lock:
            if self.store.read_only:
                raise BankError(f"{self.store.path} is open read-only; open it for writing to change it")
            if self._in_transaction:
                try:
                    yield
                except BaseException as error:
                    self._failed = error
                    raise
                return
            self._in_transaction, self._failed = True, None
            try:
                with self.store.transaction():
                    yield
                    if self._failed is not None:
                        raise self._failed
                    self.store.run_many("INSERT OR REPLACE INTO counters VALUES (?, ?)", self.counters.items())
            except BaseException:
                self._load()
                raise
            finally:
                self._in_transaction = False

    @contextmanager
    def snapshot(self, scopes: Iterable[str] | None) -> Iterator[KeySnapshot]:
        """The keys of some scopes (None: of all) as they are now, to search without holding the lock."""
        with self.lock:
            snapshot = self.live.snapshot(scopes)
        try:
            yield snapshot
        finally:
            with self.lock:
                snapshot.release()

    def tick(self, step: int) -> int:
        """The step to log at: steps never run back, or the log could not say what the bank was at a step."""
        self.clock = max(self.clock, step)
        return self.clock

    def write(self, draft: Draft, step: int) -> Added:
        """Take a text in. A merged entry starts with the statistics of what it replaces, any other with none."""
        step = self.tick(step)
        text = storable(draft.text)
        if len(text.strip()) < self._config.min_chars:
            reason = f"shorter than bank.min_chars ({self._config.min_chars})"
            return self.refuse(draft.kind, "short", reason, step, draft.generation_id)
        cut = len(text) > self._config.max_chars
        text = text[: self._config.max_chars]
        key_text = storable(draft.key_text)
        junk = self._junk.judge(text, key_text) if self._junk is not None else None
        if junk is not None:
            return self.refuse(draft.kind, junk, f"{_JUNK[junk]} (bank.junk_filter): {text[:_QUOTED]}", step, draft.generation_id)
        key_id, vector = self._key(key_text)
        merging = draft.kind == "merge"
        twin = self._duplicates.find(draft.scope, key_id, text, ignoring=draft.retire if merging else ())
        if twin is not None:
            if not merging:
                return self._vote(draft, twin, step)
            draft = replace(draft, parents=[*draft.parents, twin], retire=[*draft.retire, twin])
        stats = combined(self._stats(draft.retire)) if merging else EntryStats()
        self.retire(draft.retire, step)
        self.make_room(1, step)
        entry_id = self._insert(draft, text, key_id, step, stats)
        self.live.add(entry_id, draft.scope, key_id, vector, step, stats)
        if merging:
            self.routing.inherit(entry_id, draft.scope, draft.retire)
        payload: dict[str, Any] = {"entry": entry_id, "text": text, "key": key_text, "scope": draft.scope}
        payload |= {"parents": sorted(set(draft.parents)), "retired": list(draft.retire), "generation": draft.generation_id}
        if merging:
            payload["base"] = asdict(stats)
        if cut:
            payload["cut"] = True
            self.counters["cut"] += 1
        operation = self.log(draft.kind, step, [entry_id, *draft.retire], **payload)
        self._sign(entry_id, operation, draft.generation_id)
        return Added(entry_id, "added")

    def keeps_proven(self, stats: EntryStats) -> bool:
        """Whether an update leaves an entry of these statistics live: with `bank.protect_proven`, when the mean of its posterior is
        above that of an untried text."""
        untried = self._posterior.mean(0.0, 0.0, 0.0)
        proven = self._posterior.mean(float(stats.successes), float(stats.failures), float(stats.votes)) > untried
        return self._config.protect_proven and proven

    def refuse(self, kind: str, cause: Cause, reason: str, step: int, generation_id: str | None) -> Added:
        """Log and count that a text was not taken."""
        self.log("refuse", self.tick(step), (), asked=kind, reason=reason, generation=generation_id)
        self.counters[f"refused_{cause}"] += 1
        return Added(None, "refused", reason, cause)

    def retire(self, ids: Sequence[int], step: int) -> None:
        """Take live entries out; whoever calls logs why."""
        for entry_id in ids:
            scope, key_id = self.live.home(entry_id)
            self.store.run("UPDATE entries SET retired_step = ? WHERE id = ?", (step, entry_id))
            self.live.remove(entry_id)
            self._duplicates.removed(scope, key_id, entry_id)

    def revive(self, ids: Sequence[int]) -> None:
        """Take retired entries back in with the statistics they have now; whoever calls logs why and has made room."""
        for entry_id in ids:
            self.store.run("UPDATE entries SET retired_step = NULL WHERE id = ?", (entry_id,))
            scope, key_id, created, vector, *stats = self.store.rows(
                f"SELECT e.scope, e.key_id, e.created_step, k.vector, {STATS} FROM entries e JOIN keys k ON k.id = e.key_id "
                "WHERE e.id = ?",
                (entry_id,),
            )[0]
            self.live.add(entry_id, scope, key_id, vector_from_blob(vector), created, EntryStats(*stats))
            self._duplicates.revived(scope, key_id)

    def make_room(self, incoming: int, step: int) -> list[int]:
        """Evict by the bank's policy, and log it, until `incoming` entries fit in; returns who left.

        Raises BankError when the bank could never hold that many.
        """
        capacity = self._config.capacity
        if incoming > capacity:
            raise BankError(f"{incoming} entries would come in and bank.capacity is {capacity}; raise it")
        evicted = []
        while len(self.live) + incoming > capacity:
            evicted.append(self.live.next_to_evict())
            self.retire(evicted[-1:], step)
            self.log("evict", step, evicted[-1:], retired=evicted[-1:])
        return evicted

    def scope(self, entry_id: int) -> str | None:
        """Of an entry, live or retired; None where there is none of this id."""
        if entry_id in self.live:
            return self.live.home(entry_id)[0]
        rows = self.store.rows("SELECT scope FROM entries WHERE id = ?", (entry_id,))
        return rows[0][0] if rows else None

    def identical_to(self, entry_id: int) -> int | None:
        """The live entry, if any, whose text is identical to that of a retired one of the same key and scope."""
        rows = self.store.rows(
            "SELECT o.id FROM entries e JOIN entries o USING (scope, key_id, fingerprint) "
            "WHERE e.id = ? AND o.id != e.id AND o.retired_step IS NULL ORDER BY o.id LIMIT 1",
            (entry_id,),
        )
        return rows[0][0] if rows else None

    def log(self, kind: str, step: int, entries: Sequence[int], **payload: Any) -> int:
        """Append to the operation log and count; returns the operation's id. `entries` are those whose history it belongs to."""
        operation = self.store.run(
            "INSERT INTO operations (step, kind, payload) VALUES (?, ?, ?)", (step, kind, json.dumps(payload, ensure_ascii=False))
        )
        self.store.run_many("INSERT INTO touched VALUES (?, ?)", [(entry_id, operation) for entry_id in dict.fromkeys(entries)])
        self.counters[kind] += 1
        return operation

    def _vote(self, draft: Draft, twin: int, step: int) -> Added:
        retired = [entry_id for entry_id in draft.retire if entry_id != twin]
        self.retire(retired, step)
        operation = self.log(
            "vote", step, [twin, *retired], entry=twin, asked=draft.kind, retired=retired, generation=draft.generation_id
        )
        self._sign(twin, operation, draft.generation_id)
        self.store.run("UPDATE entries SET votes = votes + 1 WHERE id = ?", (twin,))
        self.live.count_vote(twin)
        return Added(twin, "duplicate", f"entry {twin} says the same")

    def _insert(self, draft: Draft, text: str, key_id: int, step: int, stats: EntryStats) -> int:
        vector = self._duplicates.vector(text)
        entry_id = self.store.run(
            "INSERT INTO entries (text, fingerprint, text_vector, key_id, scope, created_step, generation_id, retrieved, shown, "
            "successes, failures, votes, last_retrieved_step) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                text,
                fingerprint(text),
                None if vector is None else vector_to_blob(vector),
                key_id,
                draft.scope,
                step,
                draft.generation_id,
                stats.retrieved,
                stats.shown,
                stats.successes,
                stats.failures,
                stats.votes,
                stats.last_retrieved_step,
            ),
        )
        self.store.run_many("INSERT INTO lineage VALUES (?, ?)", [(entry_id, parent) for parent in set(draft.parents)])
        self._duplicates.added(draft.scope, key_id, entry_id, vector)
        return entry_id

    def _stats(self, ids: Sequence[int]) -> list[EntryStats]:
        marks = ", ".join("?" * len(ids))
        return [EntryStats(*row) for row in self.store.rows(f"SELECT {STATS} FROM entries e WHERE e.id IN ({marks})", ids)]

    def _sign(self, entry_id: int, operation: int, generation_id: str | None) -> None:
        if generation_id is not None:
            self.store.run("INSERT INTO writers VALUES (?, ?, ?)", (entry_id, operation, generation_id))

    def _key(self, text: str) -> tuple[int, Vectors]:
        rows = self.store.rows("SELECT id, vector FROM keys WHERE text = ?", (text,))
        if rows:
            return rows[0][0], vector_from_blob(rows[0][1])
        vector = self._embedder.embed([text])[0]
        return self.store.run("INSERT INTO keys (text, vector) VALUES (?, ?)", (text, vector_to_blob(vector))), vector

    def _load(self) -> None:
        """Read from the store what is kept in memory."""
        self._duplicates.forget()
        self.counters = Counter(dict.fromkeys((*KINDS, *REFUSALS, "cut", "gone"), 0))
        self.counters.update(dict(self.store.rows("SELECT name, value FROM counters")))
        self.clock = max(
            # Steps are logged in order, so the last row of each table has its latest.
            int(self.store.rows(f"SELECT coalesce((SELECT step FROM {table} ORDER BY id DESC LIMIT 1), 0)")[0][0])
            for table in ("operations", "retrievals", "outcomes", "credits", "trainings")
        )
        self.routing = Routing(self.store)
        self.live = LiveEntries(self._dimensions, self._config.eviction, self._posterior)
        vectors = {
            key_id: vector_from_blob(blob)
            for key_id, blob in self.store.stream(
                "SELECT id, vector FROM keys WHERE id IN (SELECT key_id FROM entries WHERE retired_step IS NULL)"
            )
        }
        for entry_id, scope, key_id, created, *stats in self.store.stream(SELECT_LIVE):
            self.live.add(entry_id, scope, key_id, vectors[key_id], created, EntryStats(*stats))
