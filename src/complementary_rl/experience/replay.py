"""Reading the operation log: the bank as it was, and where an entry comes from."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from complementary_rl.errors import BankError
from complementary_rl.experience.records import LogRecord
from complementary_rl.experience.store import BankStore
from complementary_rl.types import Entry, EntryStats

_LOG = "SELECT o.id, o.step, o.kind, o.payload, r.operation_id FROM operations o LEFT JOIN reverts r ON r.reverted = o.id"

_OF = f"{_LOG} WHERE o.id IN (SELECT operation_id FROM touched WHERE entry_id IN"

_FAMILY = f"""
    WITH RECURSIVE
      ancestors(id) AS (SELECT ? UNION SELECT parent FROM lineage JOIN ancestors ON child = ancestors.id),
      descendants(id) AS (SELECT ? UNION SELECT child FROM lineage JOIN descendants ON parent = descendants.id)
    {_OF} (SELECT id FROM ancestors UNION SELECT id FROM descendants)) ORDER BY o.id"""


def rebuild(store: BankStore, step: int) -> list[Entry]:
    """The live entries, with their statistics, at the end of `step`, by replaying the log; in order of id."""
    known: dict[int, Entry] = {}
    live: set[int] = set()
    for row in store.stream(f"{_LOG} WHERE o.step <= {int(step)} ORDER BY o.id"):
        _apply(known, live, record_from_row(row))
    entries = {entry_id: known[entry_id] for entry_id in live}
    for entry_id, changes in _stats(store, step).items():
        if entry_id in entries:
            entry = entries[entry_id]
            entries[entry_id] = replace(entry, stats=_plus(entry.stats, changes))
    trained = {
        generation_id: (times, last)
        for generation_id, times, last in store.rows(
            "SELECT generation_id, count(*), max(update_number) FROM trainings WHERE step <= ? GROUP BY generation_id", (step,)
        )
    }
    for entry_id, entry in entries.items():
        times, last = trained.get(entry.generation_id, (0, -1))
        entries[entry_id] = replace(entry, stats=replace(entry.stats, trained=times, last_trained_update=last))
    return [entries[entry_id] for entry_id in sorted(entries)]


def history(store: BankStore, entry_id: int) -> list[LogRecord]:
    """Every operation on an entry, its ancestors and its descendants, oldest first."""
    return [record_from_row(row) for row in store.rows(_FAMILY, (entry_id, entry_id))]


def newest(store: BankStore, limit: int) -> list[LogRecord]:
    """The last `limit` operations, oldest first."""
    return [record_from_row(row) for row in store.rows(f"{_LOG} ORDER BY o.id DESC LIMIT ?", (limit,))][::-1]


def operation(store: BankStore, operation_id: int) -> LogRecord:
    """Raises BankError when there is none of this id."""
    rows = store.rows(f"{_LOG} WHERE o.id = ?", (operation_id,))
    if not rows:
        raise BankError(f"the bank has no operation {operation_id}; list them with `crl bank log`")
    return record_from_row(rows[0])


def unreverted_since(store: BankStore, operation_id: int, entries: Sequence[int]) -> list[LogRecord]:
    """The operations on any of `entries` after the given one that were not reverted, oldest first."""
    marks = ", ".join("?" * len(entries))
    sql = f"{_OF} ({marks})) AND o.id > ? AND r.reverted IS NULL ORDER BY o.id"
    return [record_from_row(row) for row in store.rows(sql, (*entries, operation_id))]


def maker(store: BankStore, entry_id: int) -> LogRecord:
    """The operation that an entry came from: no other operation on it is older."""
    return record_from_row(store.rows(f"{_OF} (?)) ORDER BY o.id LIMIT 1", (entry_id,))[0])


def record_from_row(row: Any) -> LogRecord:
    record_id, step, kind, payload, reverted_by = row
    return LogRecord(record_id, step, kind, json.loads(payload), reverted_by)


def _apply(known: dict[int, Entry], live: set[int], record: LogRecord) -> None:
    payload = record.payload
    live.difference_update(payload.get("retired", ()))
    live.update(payload.get("revived", ()))
    if record.kind == "vote":
        entry = known[payload["entry"]]
        known[entry.id] = replace(entry, stats=replace(entry.stats, votes=entry.stats.votes + 1))
    if record.kind in ("add", "update", "merge"):
        live.add(payload["entry"])
        known[payload["entry"]] = Entry(
            id=payload["entry"],
            text=payload["text"],
            key_text=payload["key"],
            scope=payload["scope"],
            created_step=record.step,
            parents=tuple(payload["parents"]),
            generation_id=payload["generation"],
            stats=EntryStats(**payload.get("base", {})),
        )


def _stats(store: BankStore, step: int) -> dict[int, dict[str, int]]:
    """What happened to each entry up to `step`."""
    changes: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for entry_id, times, last in store.rows(
        "SELECT entry_id, count(*), max(step) FROM retrievals WHERE step <= ? GROUP BY entry_id", (step,)
    ):
        changes[entry_id] |= {"retrieved": times, "last_retrieved_step": last}
    for entry_id, shown, successes, failures in store.rows(
        "SELECT entry_id, count(*), total(success), total(1 - success) FROM outcomes WHERE step <= ? GROUP BY entry_id", (step,)
    ):
        changes[entry_id] |= {"shown": shown, "successes": int(successes), "failures": int(failures)}
    return changes


def _plus(base: EntryStats, changes: dict[str, int]) -> EntryStats:
    values = asdict(base)
    for name, value in changes.items():
        values[name] = max(values[name], value) if name.startswith("last_") else values[name] + value
    return EntryStats(**values)
