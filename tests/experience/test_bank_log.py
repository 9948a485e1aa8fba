"""The operation log: the bank at any past step, lineage, export and import, checkpoint and continuation."""

import json

import pytest
from helpers.banks import KEYS, add, generation, live, open_bank, retrieve

from complementary_rl.config import RetrievalConfig
from complementary_rl.errors import BankError
from complementary_rl.experience.bank import Bank, Query

VALUE = RetrievalConfig(score="value")


def everything(bank: Bank) -> list[str]:
    """All rows of all tables, as exported."""
    path = bank._state.store.path.with_suffix(".dump")
    bank.export_jsonl(path)
    return path.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("eviction", ["fifo", "lru", "value"])
def test_the_bank_at_every_past_step_equals_what_it_was(tmp_path, eviction):
    with open_bank(tmp_path / "b", capacity=20, eviction=eviction) as bank:
        was = []
        for step in range(12):
            live(bank, range(step, step + 1))
            was.append(bank.entries())
        assert bank.counts()["evict"] > 0
        assert bank.counts()["vote"] > 0
        assert [bank.rebuild(step) for step in range(12)] == was
        assert bank.rebuild(-1) == []
        assert bank.rebuild(99) == was[-1]


def test_rebuild_needs_nothing_but_the_log(tmp_path):
    with open_bank(tmp_path / "b") as bank:
        live(bank, range(3))
        expected = bank.entries()
        bank._state.store.run("UPDATE entries SET text = 'lost', retired_step = 0, successes = 0")
        assert bank.rebuild(2) == expected


def test_steps_never_run_back(tmp_path):
    with open_bank(tmp_path / "b") as bank:
        add(bank, "first", step=5)
        late = add(bank, "late from an earlier episode", step=3)
        assert bank.entry(late).created_step == 5
    with open_bank(tmp_path / "b") as bank:
        assert bank.entry(add(bank, "after reopening", step=4)).created_step == 5


def test_history_follows_lineage_both_ways(tmp_path):
    with open_bank(tmp_path / "b") as bank:
        a, b, stranger = add(bank, "first"), add(bank, "second"), add(bank, "stranger", key=KEYS[1])
        updated = bank.update(a, "first, refined", key_text=KEYS[0], scope="rooms", step=1, generation_id="g").entry_id
        merged = bank.merge([updated, b], "both", step=2).entry_id
        bank.add("both", key_text=KEYS[0], scope="rooms", step=3, generation_id="h")
        bank.drop([merged], step=4)
        expected = [(0, "add"), (1, "update"), (2, "merge"), (3, "vote"), (4, "drop")]
        assert [(r.step, r.kind) for r in bank.history(a)] == expected
        assert [(r.step, r.kind) for r in bank.history(merged)] == [(0, "add"), *expected]
        assert [r.payload["entry"] for r in bank.history(stranger)] == [stranger]
        assert bank.history(a)[1].payload["generation"] == "g"
        assert bank.history(99) == []


def test_counts_survive_reopening(tmp_path):
    with open_bank(tmp_path / "b", capacity=15) as bank:
        live(bank, range(8))
        counts = bank.counts()
    with open_bank(tmp_path / "b", capacity=15) as bank:
        assert bank.counts() == counts
    assert all(counts[kind] > 0 for kind in ("add", "update", "merge", "vote", "drop", "evict", "return"))


def test_export_and_import_lose_nothing(tmp_path):
    text = 'a\x00b \u2028 🧭 "quoted" \\ \r\n'
    with open_bank(tmp_path / "b", duplicate_similarity=0.99) as bank:
        live(bank, range(4))
        add(bank, text, key=text, scope=text)
        rows = bank.export_jsonl(tmp_path / "out.jsonl")
        before, entries = everything(bank), bank.entries(live_only=False)
    assert Bank.import_from(tmp_path / "out.jsonl", tmp_path / "copy") == rows
    with open_bank(tmp_path / "copy", duplicate_similarity=0.99) as copy:
        assert copy.run_id == "run"
        assert everything(copy) == before
        assert copy.entries(live_only=False) == entries
        assert copy.generations(["g1-1"]) == [generation("g1-1")]
        live(copy, range(4, 6))


def test_an_imported_bank_becomes_the_run_s_that_opens_it_first(tmp_path):
    with open_bank(tmp_path / "b", run_id="old") as bank:
        add(bank, "note")
        bank.export_jsonl(tmp_path / "out.jsonl")
    Bank.import_from(tmp_path / "out.jsonl", tmp_path / "copy")
    open_bank(tmp_path / "copy", run_id="looker", read_only=True).close()
    open_bank(tmp_path / "copy", run_id="new").close()
    with pytest.raises(BankError, match="belongs to run 'new'"):
        open_bank(tmp_path / "copy", run_id="old")


def lines_of_export(tmp_path) -> list[str]:
    with open_bank(tmp_path / "source") as bank:
        live(bank, range(2))
        bank.export_jsonl(tmp_path / "good.jsonl")
    return (tmp_path / "good.jsonl").read_text().splitlines(keepends=True)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda lines: [], "not an exported bank"),
        (lambda lines: ["{}\n"], "not an exported bank"),
        (lambda lines: [lines[0].replace('"schema": ', '"schema": 9')], "schema 9"),
        (lambda lines: lines[:-5], "ends early"),
        (lambda lines: lines[:5] + lines[6:], "should hold"),
        (lambda lines: [*lines[:3], "not json\n", *lines[4:]], r"line 4: not JSON \([A-Z][a-z ]+ at character 0\)"),
        (lambda lines: [*lines[:3], "1" * 5000 + "\n", *lines[4:]], r"line 4: not JSON \(a number is too long\)"),
        (lambda lines: [line.replace('"step": 1,', f'"step": {10**30},') for line in lines], r"line \d+: a number is too large"),
        (lambda lines: [*lines, *lines], "another export begins after the end"),
        (lambda lines: [*lines, "\n", "[]"], "something else follows after the end"),
        (lambda lines: [*lines[:3], '{"table": "sqlite_master", "row": {}}\n', *lines[4:]], "line 4: no row"),
        (lambda lines: [*lines[:4], lines[3], *lines[5:]], "line 5"),
        (lambda lines: [*lines[:3], '["list"]\n', *lines[4:]], "line 4: no row"),
    ],
)
def test_a_bad_export_is_refused_and_leaves_no_bank(tmp_path, damage, message):
    (tmp_path / "bad.jsonl").write_text("".join(damage(lines_of_export(tmp_path))))
    with pytest.raises(BankError, match=message):
        Bank.import_from(tmp_path / "bad.jsonl", tmp_path / "copy")
    assert not list(tmp_path.glob("*copy*")), "neither a bank nor a lock"


def test_the_line_of_a_second_export_is_named(tmp_path):
    lines = lines_of_export(tmp_path)
    (tmp_path / "two.jsonl").write_text("".join([*lines, "\n", *lines]))
    with pytest.raises(BankError, match=rf"two\.jsonl, line {len(lines) + 2}: another export begins"):
        Bank.import_from(tmp_path / "two.jsonl", tmp_path / "copy")


def test_import_neither_reads_nonsense_nor_overwrites(tmp_path):
    with pytest.raises(BankError, match="cannot be read"):
        Bank.import_from(tmp_path / "missing.jsonl", tmp_path / "copy")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BankError, match="binary"):
        Bank.import_from(tmp_path / "binary", tmp_path / "copy")
    lines_of_export(tmp_path)
    with pytest.raises(BankError, match="exists already"):
        Bank.import_from(tmp_path / "good.jsonl", tmp_path / "source")


def test_a_restored_bank_continues_as_the_unbroken_one(tmp_path):
    config = {"capacity": 25, "eviction": "value", "duplicate_similarity": 0.95}
    with open_bank(tmp_path / "unbroken", **config) as bank:
        live(bank, range(6))
        bank.checkpoint_to(tmp_path / "checkpoint")
        live(bank, range(6, 10))
        expected = everything(bank)
    with open_bank(tmp_path / "run", **config) as bank:
        live(bank, range(3))
    Bank.restore(tmp_path / "checkpoint", tmp_path / "run")
    with open_bank(tmp_path / "run", **config) as bank:
        live(bank, range(6, 10))
        assert everything(bank) == expected


def test_reopening_changes_no_retrieval(tmp_path):
    queries = [Query(key, "rooms", 2, seed, 3) for seed in range(10) for key in [*KEYS, "which way to the vault"]]
    answers = []
    for _ in range(2):
        with open_bank(tmp_path / "b", capacity=40) as bank:
            if not answers:
                live(bank, range(10))
            answers.append(
                [
                    bank.retrieve(queries, step=10, retrieval=RetrievalConfig(score=score, pool_factor=2), training=False)
                    for score in ("paper", "value")
                ]
            )
    assert answers[0] == answers[1]


def test_a_checkpoint_is_a_bank_one_can_look_into(tmp_path):
    with open_bank(tmp_path / "b") as bank:
        live(bank, range(2))
        bank.checkpoint_to(tmp_path / "step_2" if (tmp_path / "step_2").mkdir() else tmp_path / "step_2" / "bank.sqlite")
        entries = bank.entries()
    with open_bank(tmp_path / "step_2" / "bank.sqlite", read_only=True) as copy:
        assert copy.entries() == entries
    assert sorted(path.name for path in (tmp_path / "step_2").iterdir()) == ["bank.sqlite"]


def test_exported_rows_are_readable_json(tmp_path):
    with open_bank(tmp_path / "b") as bank:
        entry_id = add(bank, "the exit is in the north")
        retrieve(bank, VALUE, training=True)
        bank.export_jsonl(tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").open()]
    assert rows[0]["format"] == "complementary-rl-bank"
    entry = next(row["row"] for row in rows if row.get("table") == "entries")
    assert (entry["id"], entry["text"], entry["retrieved"]) == (entry_id, "the exit is in the north", 1)
