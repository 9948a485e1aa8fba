"""Undoing operations: what comes back and what leaves, what has to be undone first, and what the log says of it."""

import pytest
from helpers.banks import KEYS, AngleEmbedder, add, live, open_bank, retrieve

from complementary_rl.config import RetrievalConfig
from complementary_rl.errors import BankError
from complementary_rl.experience.bank import Bank

VALUE = RetrievalConfig(score="value")


@pytest.fixture
def bank(tmp_path):
    with open_bank(tmp_path / "bank.sqlite") as opened:
        yield opened
        assert opened.rebuild(10**9) == opened.entries()
        assert sorted(entry.id for entry, _ in opened.search_text(KEYS[0], 10**6)) == ids(opened)


def ids(bank: Bank) -> list[int]:
    return [entry.id for entry in bank.entries()]


def newest(bank: Bank) -> int:
    return bank.log(1)[0].id


def update(bank: Bank, target: int, text: str, step: int = 0) -> int:
    entry_id = bank.update(target, text, key_text=KEYS[0], scope="rooms", step=step).entry_id
    assert entry_id is not None
    return entry_id


# --- what comes back -------------------------------------------------------------------------------------------------------------


def test_a_reverted_merge_brings_its_parents_back_with_what_they_earned_since(bank):
    a, b = add(bank, "first"), add(bank, "second")
    bank.record_outcomes(0, [(a, True, "t0")])
    merged = bank.merge([a, b], "both", step=1).entry_id
    merge = newest(bank)
    bank.record_outcomes(2, [(a, False, "t1"), (b, True, "t1"), (merged, True, "t2")])  # a and b: rollouts that ended late
    done = bank.revert(merge, step=3)
    assert (done.revived, done.retired, done.evicted) == ([a, b], [merged], [])
    assert ids(bank) == [a, b]
    assert [(e.stats.successes, e.stats.failures) for e in bank.entries()] == [(1, 1), (1, 0)]
    assert bank.entry(a).retired_step is None
    assert bank.entry(merged).retired_step == 3
    assert bank.entry(merged).parents == (a, b)
    assert {r.entry_id for r in retrieve(bank, VALUE, k=5)[0]} == {a, b}


def test_entries_of_an_imported_bank_are_undone_where_they_came_from(tmp_path):
    with open_bank(tmp_path / "first") as bank:
        a, b = add(bank, "first"), add(bank, "second")
        bank.record_outcomes(0, [(a, True, "t0")])
        merged = bank.merge([a, b], "both", step=1).entry_id
        bank.export_jsonl(tmp_path / "first.jsonl")
    Bank.import_from(tmp_path / "first.jsonl", tmp_path / "copy")
    with open_bank(tmp_path / "copy") as copy:
        assert copy.revert(newest(copy), step=2).retired == [merged]
        assert ids(copy) == [a, b]
        assert copy.entry(a).stats.successes == 1
        assert copy.rebuild(1) != copy.entries() == copy.rebuild(2)


def test_a_reverted_drop_update_add_and_vote(bank):
    a, b = add(bank, "first"), add(bank, "second", key=KEYS[1])
    bank.drop([a, b], step=1)
    bank.revert(newest(bank), step=1)
    assert ids(bank) == [a, b]
    refined = update(bank, a, "first, refined")
    bank.revert(newest(bank), step=1)
    assert ids(bank) == [a, b]
    assert bank.entry(refined).retired_step == 1
    c = add(bank, "third")
    bank.revert(newest(bank), step=1)
    assert ids(bank) == [a, b]
    c = add(bank, "third", step=1)
    assert (
        bank.update(c, "first", key_text=KEYS[0], scope="rooms", step=2, generation_id="voter").entry_id == a
    )  # a vote, c retires
    bank.revert(newest(bank), step=2)
    assert ids(bank) == [a, b, c]
    assert bank.writers(a) == ["voter"], "that it was said again stays true"


def test_the_entry_that_came_back_can_be_changed_again(bank):
    a = add(bank, "first")
    bank.drop([a], step=0)
    bank.revert(newest(bank), step=0)
    assert bank.add("FIRST", key_text=KEYS[0], scope="rooms", step=0).outcome == "duplicate"
    bank.record_outcomes(0, [(a, True, "t")])
    bank.drop([a], step=1)
    bank.revert(newest(bank), step=2)
    assert bank.entry(a).stats.successes == 1


def test_the_past_stays_what_it_was(bank):
    was = []
    for step, change in enumerate(
        [
            lambda: [add(bank, f"note {i}") for i in range(4)],
            lambda: bank.merge([1, 2], "one and two", step=1),
            lambda: bank.revert(5, step=2),
            lambda: bank.drop([3], step=3),
            lambda: bank.revert(newest(bank), step=4),
        ]
    ):
        change()
        bank.record_outcomes(step, [(1, True, "t"), (3, False, "t")])
        was.append(bank.entries())
    assert [bank.rebuild(step) for step in range(5)] == was
    assert [len(entries) for entries in was] == [4, 3, 4, 3, 4]


def test_history_and_log_tell_of_the_revert(bank):
    a, b = add(bank, "first"), add(bank, "second")
    merged = bank.merge([a, b], "both", step=1).entry_id
    merge = newest(bank)
    done = bank.revert(merge, step=2)
    record = bank.history(merged)[-1]
    assert (record.id, record.kind, record.step) == (done.operation_id, "revert", 2)
    assert record.payload == {"reverted": merge, "asked": "merge", "revived": [a, b], "retired": [merged]}
    assert {r.id: r.reverted_by for r in bank.log(10)} == {1: None, 2: None, merge: done.operation_id, done.operation_id: None}
    assert [r.id for r in bank.log(2)] == [merge, done.operation_id]
    assert bank.history(a)[-1] == record
    assert bank.counts()["revert"] == 1


# --- what has to be undone first -------------------------------------------------------------------------------------------------


def test_what_was_built_on_is_named_newest_first(bank):
    a, b, c = add(bank, "first"), add(bank, "second"), add(bank, "third")
    refined = update(bank, a, "first, refined")
    merged = bank.merge([refined, b], "both", step=1).entry_id
    bank.merge([merged, c], "all three", step=1)
    with pytest.raises(
        BankError, match=r"operation 4 \(update\) has been built on since.*in this order: 6 \(merge\), 5 \(merge\)$"
    ):
        bank.revert(4, step=2)
    with pytest.raises(BankError, match=r"5 \(merge\) .*: 6 \(merge\)$"):
        bank.revert(5, step=2)
    assert len(bank) == 1
    for operation in (6, 5, 4):
        bank.revert(operation, step=2)
    assert ids(bank) == [a, b, c]
    with pytest.raises(BankError, match=r"4 \(update\) was reverted already, by operation 9"):
        bank.revert(4, step=2)
    bank.revert(1, step=3)
    assert ids(bank) == [b, c]


def test_a_vote_that_retired_an_entry_builds_on_the_one_voted_for(bank):
    a, b = add(bank, "first"), add(bank, "second")
    update(bank, b, "first")
    with pytest.raises(BankError, match=r"in this order: 3 \(vote\)"):
        bank.revert(1, step=1)
    bank.add("first", key_text=KEYS[0], scope="rooms", step=1)  # a vote that changed nothing else does not
    bank.revert(3, step=1)
    bank.revert(1, step=1)
    assert ids(bank) == [b]
    assert not bank.is_live(a)


def test_an_entry_whose_text_was_written_again_stays_out(bank):
    a = add(bank, "first")
    bank.drop([a], step=0)
    drop = newest(bank)
    again = add(bank, "First ", step=1)
    with pytest.raises(BankError, match=r"entry 1 cannot come back: entry 2 is live and says the same; revert operation 3 \(add\)"):
        bank.revert(drop, step=1)
    bank.revert(3, step=2)
    bank.revert(drop, step=2)
    assert ids(bank) == [a]
    assert not bank.is_live(again)


def test_a_merge_into_the_text_of_a_parent_can_be_reverted(bank):
    a, b = add(bank, "first"), add(bank, "second")
    bank.merge([a, b], "first", step=0)
    bank.revert(newest(bank), step=0)
    assert ids(bank) == [a, b]


def test_what_cannot_be_undone_is_explained(bank):
    add(bank, "first")
    bank.record_return(step=0)
    bank.add("no", key_text=KEYS[0], scope="rooms", step=0)
    bank.add("first", key_text=KEYS[0], scope="rooms", step=0)
    for operation, kind in ((2, "return"), (3, "refuse"), (4, "vote")):
        with pytest.raises(BankError, match=rf"{operation} \({kind}\) neither made nor retired"):
            bank.revert(operation, step=0)
    with pytest.raises(BankError, match="no operation 99; list them with `crl bank log`"):
        bank.revert(99, step=0)
    done = bank.revert(1, step=0)
    with pytest.raises(BankError, match="is a revert itself and final"):
        bank.revert(done.operation_id, step=0)
    assert bank.counts()["revert"] == 1


# --- a full bank -----------------------------------------------------------------------------------------------------------------


def test_a_full_bank_makes_room_by_its_policy_for_what_comes_back(tmp_path):
    with open_bank(tmp_path / "b", capacity=3) as bank:
        a, b, c = (add(bank, f"note {i}") for i in range(3))
        merged = bank.merge([b, c], "both", step=1).entry_id
        merge = newest(bank)
        d = add(bank, "late", step=2)
        done = bank.revert(merge, step=3)
        assert (done.evicted, done.revived, done.retired) == ([a], [b, c], [merged])
        assert ids(bank) == [b, c, d]
        assert [r.kind for r in bank.log(2)] == ["evict", "revert"]
        done = bank.revert(newest(bank) - 1, step=4)  # that eviction
        assert (done.evicted, ids(bank)) == ([b], [a, c, d])
        assert bank.rebuild(4) == bank.entries()


def test_more_than_the_bank_can_hold_is_refused_whole(tmp_path):
    with open_bank(tmp_path / "b") as bank:
        bank.drop([add(bank, f"note {i}") for i in range(3)], step=0)
    with open_bank(tmp_path / "b", capacity=2) as bank:
        add(bank, "other")
        with pytest.raises(BankError, match=r"3 entries would come in and bank\.capacity is 2"):
            bank.revert(4, step=1)
        assert [entry.text for entry in bank.entries()] == ["other"]
        assert bank.rebuild(1) == bank.entries()


# --- together with the rest ------------------------------------------------------------------------------------------------------


def test_near_duplicates_are_looked_for_among_what_came_back(tmp_path):
    with open_bank(tmp_path / "b", embedder=AngleEmbedder(), duplicate_similarity=0.9) as bank:
        first = add(bank, "first @0.1", key="key @1")
        add(bank, "second @0.7", key="key @1")
        bank.drop([first], step=0)
        bank.revert(newest(bank), step=0)
        assert bank.add("alike @0.15", key_text="key @1", scope="rooms", step=0).entry_id == first


def test_a_revert_survives_reopening_and_is_undone_with_its_transaction(tmp_path):
    with open_bank(tmp_path / "b") as bank:
        a = add(bank, "first")
        bank.drop([a], step=0)
        drop = newest(bank)
        with pytest.raises(RuntimeError), bank.transaction():
            bank.revert(drop, step=0)
            raise RuntimeError
        assert ids(bank) == []
        bank.revert(drop, step=0)
        answer = retrieve(bank, VALUE, k=3)
    with open_bank(tmp_path / "b") as bank:
        assert ids(bank) == [a]
        assert retrieve(bank, VALUE, k=3) == answer
        with pytest.raises(BankError, match="reverted already"):
            bank.revert(drop, step=0)


def test_a_whole_life_can_be_undone_backwards(tmp_path):
    with open_bank(tmp_path / "b") as bank:
        live(bank, range(6))
        for record in reversed(bank.log(10**6)):
            if record.kind in ("add", "update", "merge", "drop") or record.payload.get("retired"):
                bank.revert(record.id, step=6)
        assert len(bank) == 0
        assert bank.rebuild(6) == []
        assert bank.counts()["merge"] == 3
