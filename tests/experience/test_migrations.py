"""Banks and exports of an older schema: nothing is lost on the way to the present one."""

import hashlib
import json
import sqlite3
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.banks import KEYS, add, live, open_bank

from complementary_rl.errors import BankError
from complementary_rl.experience import schema
from complementary_rl.experience.bank import Bank


def version(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])
    finally:
        connection.close()


def older(path: Path, **config) -> list:
    """Make a bank of the first schema at `path` that has lived a little; returns its entries, retired ones included.

    A bank of that age did not know that a merged entry inherits votes.
    """
    present = path.with_name("present.sqlite")
    with open_bank(present, **config) as bank:
        live(bank, range(4))
        votes = Counter(record.payload["entry"] for record in bank.log(1000) if record.kind == "vote")
        entries = [replace(e, stats=replace(e.stats, votes=votes[e.id])) for e in bank.entries(live_only=False)]
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in schema.MIGRATIONS[0]:
        connection.execute(statement)
    connection.execute("ATTACH ? AS present", (str(present),))
    names = "SELECT name FROM main.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"
    for (table,) in connection.execute(names).fetchall():
        columns = ", ".join(name for _, name, *_ in connection.execute(f"PRAGMA main.table_info({table})"))
        connection.execute(f"INSERT INTO main.{table} SELECT {columns} FROM present.{table}")
    connection.execute("UPDATE main.operations SET payload = json_remove(payload, '$.base.votes')")
    connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 1")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    return entries


def without_later_columns(line: str) -> str:
    row = json.loads(line)
    if row.get("table") == "outcomes":
        del row["row"]["scope"]
    if row.get("table") == "entries":
        del row["row"]["votes"]
    if row.get("table") == "operations":
        payload = json.loads(row["row"]["payload"])
        payload.get("base", {}).pop("votes", None)
        row["row"]["payload"] = json.dumps(payload)
    return json.dumps(row)


def test_the_first_schema_is_what_was_released():
    digest = hashlib.sha256("\n".join(schema.MIGRATIONS[0]).encode()).hexdigest()
    assert digest == "f2123ff255b682d986c6440f4bcf5cf59cbca768e43894b16219ab5b87ef14a3", (
        "a migration that files were made with must stay as it is; add another"
    )


def test_opening_for_writing_migrates_and_loses_nothing(tmp_path):
    path = tmp_path / "bank.sqlite"
    entries = older(path)
    with open_bank(path) as bank:
        assert bank.entries(live_only=False) == entries
        assert bank.rebuild(3) == bank.entries()
        operation = next(r for r in reversed(bank.log(1000)) if r.kind == "merge")
        bank.revert(operation.id, step=4)
        live(bank, range(5, 7))
    assert version(path) == schema.VERSION
    with open_bank(path) as bank:
        assert bank.counts()["revert"] == 1
        assert bank.rebuild(6) == bank.entries()


def test_reading_an_older_bank_works_and_leaves_it_alone(tmp_path):
    path = tmp_path / "bank.sqlite"
    entries = older(path)
    before = path.read_bytes()
    with open_bank(path, read_only=True, run_id=None) as bank:
        assert bank.entries(live_only=False) == entries
        assert bank.rebuild(3) == bank.entries()
        assert {r.reverted_by for r in bank.log(1000)} == {None}
        with pytest.raises(BankError, match="read-only"):
            add(bank, "note")
        bank.export_jsonl(tmp_path / "out.jsonl")
    assert path.read_bytes() == before
    Bank.import_from(tmp_path / "out.jsonl", tmp_path / "copy")
    with open_bank(tmp_path / "copy") as bank:
        assert bank.entries(live_only=False) == entries


def test_a_checkpoint_of_an_older_schema_can_be_restored(tmp_path):
    entries = older(tmp_path / "checkpoint")
    Bank.restore(tmp_path / "checkpoint", tmp_path / "bank.sqlite")
    with open_bank(tmp_path / "bank.sqlite") as bank:
        assert bank.entries(live_only=False) == entries
        live(bank, range(4, 6))
    assert version(tmp_path / "checkpoint") == 1


def test_an_export_of_an_older_schema_is_read(tmp_path):
    entries = older(tmp_path / "bank.sqlite")
    with open_bank(tmp_path / "present.sqlite", read_only=True) as bank:
        bank.export_jsonl(tmp_path / "present.jsonl")
    header, *lines = (tmp_path / "present.jsonl").read_text().splitlines()
    assert not any('"table": "reverts"' in line for line in lines), "an older export has no rows of that table"
    old = tmp_path / "old.jsonl"
    lines = [without_later_columns(line) for line in lines]
    old.write_text("\n".join([json.dumps({**json.loads(header), "schema": 1}), *lines]) + "\n")
    Bank.import_from(old, tmp_path / "copy")
    assert version(tmp_path / "copy") == schema.VERSION
    with open_bank(tmp_path / "copy") as bank:
        assert bank.entries(live_only=False) == entries
        live(bank, range(4, 5))
    lines.insert(0, '{"table": "reverts", "row": {"reverted": 1, "operation_id": 2}}')
    old.write_text("\n".join([json.dumps({**json.loads(header), "schema": 1}), *lines]) + "\n")
    with pytest.raises(BankError, match="line 2: no row"):
        Bank.import_from(old, tmp_path / "other")


def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "bank.sqlite"
    entries = older(path)
    monkeypatch.setattr(schema, "MIGRATIONS", [schema.MIGRATIONS[0], ["CREATE TABLE half (a)", "INSERT INTO nowhere VALUES (1)"]])
    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        open_bank(path)
    assert version(path) == 1
    monkeypatch.undo()
    with open_bank(path) as bank:
        assert bank.entries(live_only=False) == entries
        assert "half" not in bank._state.store.tables()


def test_votes_of_an_older_bank_are_counted_from_its_log(tmp_path):
    with open_bank(tmp_path / "present.sqlite") as bank:
        twice, once = add(bank, "written twice"), add(bank, "written once")
        assert bank.add("written twice", key_text=KEYS[0], scope="rooms", step=0, generation_id=None).entry_id == twice
        assert [bank.entry(i).stats.votes for i in (twice, once)] == [1, 0]
    connection = sqlite3.connect(tmp_path / "present.sqlite")
    connection.execute("ALTER TABLE entries DROP COLUMN votes")
    connection.execute("PRAGMA user_version = 3")
    connection.close()
    with open_bank(tmp_path / "present.sqlite") as bank:
        assert [bank.entry(i).stats.votes for i in (twice, once)] == [1, 0]
        assert bank.rebuild(0) == bank.entries()
