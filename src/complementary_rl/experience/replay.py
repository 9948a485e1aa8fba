"""Reading the operation log: the bank as it was, and where an entry comes from."""

import json
from collections import defaultdict
from dataclasses import asdict, replace
from typing import Any

from complementary_rl.experience.records import LogRecord
from complementary_rl.experience.store import BankStore
from complementary_rl.types import Entry, EntryStats

_FAMILY = """
    WITH RECURSIVE
      ancestors(id) AS (SELECT ? UNION SELECT parent FROM lineage JOIN ancestors ON child = ancestors.id),
      descendants(id) AS (SELECT ? UNION SELECT child FROM lineage JOIN descendants ON parent = descendants.id)
    SELECT DISTINCT o.id, o.step, o.kind, o.payload FROM operations o JOIN touched t ON t.operation_id = o.id
    WHERE t.entry_id IN (SELECT id FROM ancestors UNION SELECT id FROM descendants) ORDER BY o.id"""


def rebuild(store: BankStore, step: int) -> list[Entry]:
    """The live entries, with their statistics, at the end of `step`, by replaying the log; in order of id."""
    entries: dict[int, Entry] = {}
    for row in store.stream(f"SELECT id, step, kind, payload FROM operations WHERE step <= {int(step)} ORDER BY id"):
        _apply(entries, record_from_row(row))
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


def record_from_row(row: Any) -> LogRecord:
    record_id, step, kind, payload = row
    return LogRecord(record_id, step, kind, json.loads(payload))


def _apply(entries: dict[int, Entry], record: LogRecord) -> None:
    payload = record.payload
    for gone in payload.get("retired", ()):
        del entries[gone]
    if record.kind in ("add", "update", "merge"):
        entries[payload["entry"]] = Entry(
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
