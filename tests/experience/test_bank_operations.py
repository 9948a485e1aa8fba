"""What add, update, merge, drop and the cap do to entries, and what is counted."""

import pytest
from helpers.banks import KEYS, AngleEmbedder, add, generation, open_bank, retrieve

from complementary_rl.config import RetrievalConfig
from complementary_rl.errors import BankError
from complementary_rl.experience.bank import Bank
from complementary_rl.types import EntryStats, Generation

VALUE = RetrievalConfig(score="value")


@pytest.fixture
def bank(tmp_path):
    with open_bank(tmp_path / "bank.sqlite") as opened:
        yield opened


def texts(bank: Bank) -> list[str]:
    return [entry.text for entry in bank.entries()]


# --- add -------------------------------------------------------------------------------------------------------------------------


def test_an_added_entry_is_kept_as_it_was_given(bank):
    entry_id = add(bank, "the exit is in the north", key=KEYS[0], scope="rooms", step=3, generation="g1")
    entry = bank.entry(entry_id)
    assert (entry.text, entry.key_text, entry.scope, entry.created_step) == ("the exit is in the north", KEYS[0], "rooms", 3)
    assert (entry.generation_id, entry.parents, entry.retired_step) == ("g1", (), None)
    assert entry.stats == EntryStats()
    assert len(bank) == 1


def test_ids_count_up_and_are_never_used_again(bank):
    first, second = add(bank, "first"), add(bank, "second")
    bank.drop([second], step=0)
    assert (first, second, add(bank, "third")) == (1, 2, 3)


@pytest.mark.parametrize("again", ["the exit is north", "The  EXIT is\tnorth ", "ｔｈｅ exit is north"])
def test_an_identical_text_votes_for_the_live_entry(bank, again):
    entry_id = add(bank, "the exit is north", generation="author")
    added = bank.add(again, key_text=KEYS[0], scope="rooms", step=2, generation_id="voter")
    assert (added.entry_id, added.outcome) == (entry_id, "duplicate")
    assert bank.entry(entry_id).generation_id == "author"
    assert bank.writers(entry_id) == ["author", "voter"]
    assert len(bank) == 1
    counts = bank.counts()
    assert (counts["add"], counts["vote"], counts["duplicate_share"]) == (1, 1, 0.5)


def test_the_same_text_under_another_key_or_scope_or_after_retirement_is_new(bank):
    first = add(bank, "the exit is north")
    add(bank, "the exit is north", key=KEYS[1])
    add(bank, "the exit is north", scope="other")
    bank.drop([first], step=1)
    add(bank, "the exit is north", step=1)


def test_near_identical_texts_are_duplicates_when_the_threshold_says_so(tmp_path):
    with open_bank(tmp_path / "b", embedder=AngleEmbedder(), duplicate_similarity=0.9) as bank:
        first = add(bank, "first @0.1", key="key @1")
        add(bank, "second @0.7", key="key @1")
        add(bank, "elsewhere @0.1", key="other @1")
        assert bank.add("alike @0.15", key_text="key @1", scope="rooms", step=0).entry_id == first
        bank.drop([first], step=0)
        add(bank, "alike @0.15", key="key @1")


def test_the_threshold_may_be_lowered_on_a_bank_that_exists(tmp_path):
    with open_bank(tmp_path / "b", embedder=AngleEmbedder()) as bank:
        first = add(bank, "first @0.1", key="key @1")
    with open_bank(tmp_path / "b", embedder=AngleEmbedder(), duplicate_similarity=0.9) as bank:
        assert bank.add("alike @0.15", key_text="key @1", scope="rooms", step=0).entry_id == first
        second = add(bank, "second @0.6", key="key @1")
        assert bank.add("alike @0.65", key_text="key @1", scope="rooms", step=0).entry_id == second
    with open_bank(tmp_path / "b", embedder=AngleEmbedder(), duplicate_similarity=0.9) as bank:
        assert bank.add("alike @0.66", key_text="key @1", scope="rooms", step=0).entry_id == second


@pytest.mark.parametrize("short", ["", "abc", "  abc  ", "\n\t "])
def test_short_texts_are_refused_and_counted(bank, short):
    added = bank.add(short, key_text=KEYS[0], scope="rooms", step=0, generation_id="g")
    assert (added.entry_id, added.outcome) == (None, "refused")
    assert "min_chars" in added.reason
    assert (len(bank), bank.counts()["refuse"]) == (0, 1)


def test_long_texts_are_cut_and_counted(tmp_path):
    with open_bank(tmp_path / "b", max_chars=10) as bank:
        entry_id = add(bank, "0123456789abc")
        assert bank.entry(entry_id).text == "0123456789"
        assert bank.add("0123456789xyz", key_text=KEYS[0], scope="rooms", step=0).entry_id == entry_id
        assert bank.counts()["cut"] == 1


HOSTILE = [
    "'); DROP TABLE entries; --",
    "a\x00b\x00 NUL inside",
    "🧭 \u202eright to left\u202c é e\u0301 \u2028 line separator",
    "<|end|><|assistant|>{{ jinja }} \\ \" ' ` \r\n\t",
    "x" * 2000,
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_stored_and_found_intact(bank, text):
    entry_id = add(bank, text, key=text, scope=text)
    assert bank.entry(entry_id).text == text
    assert [e.id for e in bank.entries(scope=text, key_text=text)] == [entry_id]
    assert retrieve(bank, VALUE, text=text, scope=text)[0][0].text == text
    assert bank.rebuild(0) == bank.entries()
    assert bank.history(entry_id)[0].payload["text"] == text


def test_lone_surrogates_which_no_file_can_hold_are_replaced(bank):
    assert bank.entry(add(bank, "half \ud83d of a pair", key="\ud83d", scope="s")).text == "half \ufffd of a pair"
    assert bank.entry(add(bank, "whole \ud83d\ude00 pair")).text == "whole 😀 pair"
    assert retrieve(bank, VALUE, text="\ud83d", scope="s")[0][0].similarity == 1.0


# --- update ----------------------------------------------------------------------------------------------------------------------


def test_an_update_replaces_its_target_and_starts_anew(bank):
    old = add(bank, "the exit is in the north", key=KEYS[1], scope="rooms", generation="g1")
    bank.record_outcomes(0, [(old, True, "t")])
    added = bank.update(old, "the exit is in the south", key_text=KEYS[0], scope="elsewhere", step=4, generation_id="g2")
    entry = bank.entry(added.entry_id)
    assert added.outcome == "added"
    assert (entry.key_text, entry.scope) == (KEYS[1], "rooms"), "it stays where the target was"
    assert (entry.parents, entry.generation_id, entry.stats) == ((old,), "g2", EntryStats())
    assert bank.entry(old).retired_step == 4
    assert texts(bank) == ["the exit is in the south"]


@pytest.mark.parametrize("known", [True, False])
def test_an_update_of_what_is_gone_is_an_add_that_is_counted(bank, known):
    target = add(bank, "the exit is in the north")
    bank.drop([target], step=0)
    if not known:
        target = 99
    added = bank.update(target, "the exit is in the south", key_text=KEYS[2], scope="river", step=1)
    entry = bank.entry(added.entry_id)
    assert (entry.key_text, entry.scope, entry.parents) == (KEYS[2], "river", (target,) if known else ())
    assert bank.counts()["gone"] == 1


def test_an_update_to_its_own_text_is_a_vote_for_the_target(bank):
    target = add(bank, "the exit is in the north", generation="g1")
    added = bank.update(target, "The exit is in the north", key_text=KEYS[0], scope="rooms", step=1, generation_id="g2")
    assert (added.entry_id, added.outcome) == (target, "duplicate")
    assert bank.is_live(target)
    assert bank.writers(target) == ["g1", "g2"]


def test_an_update_to_another_entrys_text_retires_the_target_and_votes_for_the_other(bank):
    target, other = add(bank, "wrong idea"), add(bank, "right idea")
    added = bank.update(target, "right idea", key_text=KEYS[0], scope="rooms", step=1)
    assert (added.entry_id, added.outcome) == (other, "duplicate")
    assert not bank.is_live(target)
    assert bank.is_live(other)


def test_an_update_stands_beside_a_target_that_has_proven_itself(tmp_path):
    with open_bank(tmp_path / "bank.sqlite", protect_proven=True) as bank:
        proven, failed, untried = (add(bank, text, key=KEYS[0]) for text in ("proven", "failed", "untried"))
        bank.record_outcomes(1, [(proven, True, "a"), (proven, False, "b"), (failed, False, "c")])
        made = [
            bank.update(target, f"instead of {target}", key_text=KEYS[0], scope="s", step=2).entry_id
            for target in (proven, failed, untried)
        ]
        assert [bank.is_live(entry) for entry in (proven, failed, untried)] == [True, False, False]
        assert bank.entry(made[0]).parents == (proven,)
        again = bank.update(proven, "PROVEN", key_text=KEYS[0], scope="s", step=3)
        assert (again.outcome, again.entry_id) == ("duplicate", proven)
        assert bank.is_live(proven)


def test_a_refused_update_leaves_its_target(bank):
    target = add(bank, "the exit is in the north")
    assert bank.update(target, "no", key_text=KEYS[0], scope="rooms", step=1).outcome == "refused"
    assert bank.is_live(target)


# --- merge, drop, return ---------------------------------------------------------------------------------------------------------


def test_a_merge_sums_statistics_and_keeps_lineage(bank):
    a, b = add(bank, "the exit is in the north", generation="g1"), add(bank, "go north for the exit", generation="g2")
    retrieve(bank, VALUE, k=2, step=5, training=True)
    bank.record_outcomes(5, [(a, True, "t1"), (b, True, "t2"), (b, False, "t3"), (b, None, "t4")])
    bank.mark_trained(["g1"], update=0)
    added = bank.merge([a, b, a], "the exit lies north", step=6, generation_id="g3")
    entry = bank.entry(added.entry_id)
    assert entry.parents == (a, b)
    assert entry.stats == EntryStats(retrieved=2, shown=4, successes=2, failures=1, trained=0, last_retrieved_step=5)
    assert (entry.key_text, entry.generation_id) == (KEYS[0], "g3")
    assert texts(bank) == ["the exit lies north"]
    assert retrieve(bank, VALUE)[0][0].score == pytest.approx(2.4 / 5.4), "retrieval knows the summed statistics"


def test_a_merge_of_targets_that_changed_meanwhile_is_refused_whole(bank):
    a, b = add(bank, "first"), add(bank, "second")
    bank.drop([b], step=1)
    added = bank.merge([a, b], "both of them", step=1)
    assert (added.outcome, added.reason) == ("refused", f"no longer live: {b}")
    assert texts(bank) == ["first"]
    assert bank.merge([], "nothing", step=1).outcome == "refused"


def test_a_merge_may_keep_the_words_of_a_target_and_takes_in_a_third_that_says_the_same(bank):
    a, b, c = add(bank, "first"), add(bank, "second"), add(bank, "third")
    bank.record_outcomes(0, [(c, True, "t")])
    same = bank.merge([a, b], "first", step=1)
    assert bank.entry(same.entry_id).parents == (a, b)
    taken = bank.merge([same.entry_id], "third", step=2)
    assert bank.entry(taken.entry_id).parents == (c, same.entry_id)
    assert bank.entry(taken.entry_id).stats.successes == 1
    assert texts(bank) == ["third"]


def test_a_merge_across_keys_goes_where_it_is_told(bank):
    a, b = add(bank, "first", key=KEYS[0]), add(bank, "second", key=KEYS[1])
    added = bank.merge([a, b], "common to both", key_text=KEYS[2], scope="all", step=1)
    assert (bank.entry(added.entry_id).key_text, bank.entry(added.entry_id).scope) == (KEYS[2], "all")
    assert [(entry, scope) for entry, scope, _ in bank.filed()] == [(added.entry_id, "all")]


def test_drop_reports_and_counts_what_was_live(bank):
    a, b = add(bank, "first"), add(bank, "second")
    assert bank.drop([b, 77, b], step=1) == [b]
    assert bank.drop([b], step=1) == []
    assert [e.id for e in bank.entries()] == [a]
    assert [e.id for e in bank.entries(live_only=False)] == [a, b]
    assert bank.counts()["drop"] == 1


def test_return_is_counted_and_changes_nothing(bank):
    bank.record_return(step=0, generation_id="g")
    assert bank.counts()["return"] == 1
    assert len(bank) == 0


# --- records ---------------------------------------------------------------------------------------------------------------------


def test_generations_come_back_exactly_and_in_order(bank):
    exact = Generation("odd", "m", 3, (), (5,), (-0.1,), "length", 0.3)  # −0.1 is no float32
    empty = Generation("empty", "m", 0, (1, 2), (), (), "context")
    compact = generation("compact")
    bank.record_generations([exact, empty, compact])
    assert bank.generations(["compact", "odd", "empty", "odd"]) == [compact, exact, empty, exact]
    assert bank.generations([]) == []
    with pytest.raises(KeyError, match="unknown"):
        bank.generations(["compact", "unknown"])


def test_many_generations_can_be_asked_for_at_once(bank):
    bank.record_generations(generation(f"g{i}") for i in range(2000))
    assert len(bank.generations([f"g{i}" for i in range(2000)])) == 2000


def test_training_is_counted_for_every_entry_the_generation_wrote(bank):
    a, b, c = (add(bank, f"note {i}", generation="g" if i < 2 else "h") for i in range(3))
    bank.mark_trained(["g"], update=0)
    bank.mark_trained(["g", "h"], update=3)
    assert [bank.entry(i).stats.trained for i in (a, b, c)] == [2, 2, 1]
    assert bank.entry(c).stats.last_trained_update == 3


def test_outcomes_of_retired_entries_are_still_counted(bank):
    entry_id = add(bank, "note")
    bank.drop([entry_id], step=0)
    bank.record_outcomes(1, [(entry_id, True, "late")])
    assert bank.entry(entry_id).stats.successes == 1


def test_entries_can_be_filtered(bank):
    ids = [add(bank, f"note {i}", key=KEYS[i % 2], scope="ab"[i % 2]) for i in range(6)]
    assert [e.id for e in bank.entries(scope="a")] == ids[::2]
    assert [e.id for e in bank.entries(key_text=KEYS[1])] == ids[1::2]
    assert bank.entries(key_text="no such key") == []


def test_text_search_ranks_by_key_over_all_scopes(bank):
    add(bank, "about the vault", key=KEYS[1], scope="a")
    amber = [add(bank, f"about the gallery {i}", key=KEYS[0], scope="b") for i in range(3)]
    found = bank.search_text("amber gallery", 2)
    assert [entry.id for entry, _ in found] == [amber[2], amber[1]]
    assert found[0][1] > 0.5
    assert len(bank.search_text("amber gallery", 10)) == 4


def test_an_unknown_entry_is_named(bank):
    with pytest.raises(BankError, match="no entry 7"):
        bank.entry(7)


# --- the cap ---------------------------------------------------------------------------------------------------------------------


def test_fifo_evicts_the_oldest(tmp_path):
    with open_bank(tmp_path / "b", capacity=2) as bank:
        for name in ("first", "second", "third"):
            add(bank, name, step=1)
        assert texts(bank) == ["second", "third"]
        assert bank.counts()["evict"] == 1
        assert bank.entry(1).retired_step == 1


def test_lru_evicts_the_longest_unretrieved(tmp_path):
    with open_bank(tmp_path / "b", capacity=3, eviction="lru") as bank:
        old = add(bank, "old but used", key=KEYS[0], step=0)
        add(bank, "unused", key=KEYS[1], step=1)
        add(bank, "younger", key=KEYS[1], step=2)
        retrieve(bank, VALUE, text=KEYS[0], step=5, training=True)
        add(bank, "newest", key=KEYS[1], step=6)
        add(bank, "newest of all", key=KEYS[1], step=6)
        assert texts(bank) == ["old but used", "newest", "newest of all"]
        assert bank.is_live(old)


def test_value_evicts_the_worst_posterior_mean(tmp_path):
    with open_bank(tmp_path / "b", capacity=4, eviction="value") as bank:
        good, bad, worse, unknown = (add(bank, name) for name in ("good", "badly", "worse", "unknown"))
        bank.record_outcomes(0, [(worse, False, "t")] * 3 + [(bad, False, "t"), (good, True, "t")])
        for i, expected in enumerate([worse, bad, unknown]):
            add(bank, f"newcomer {i}")
            assert not bank.is_live(expected)
        assert bank.is_live(good)


def test_eviction_by_value_takes_the_prior_of_retrieval(tmp_path):
    optimist = RetrievalConfig(prior_success=5.0, prior_failure=1.0)
    with open_bank(tmp_path / "b", capacity=2, eviction="value", retrieval=optimist) as bank:
        tried, _ = add(bank, "tried"), add(bank, "unknown")
        bank.record_outcomes(0, [(tried, True, "t"), (tried, False, "t")])
        add(bank, "newcomer")
        assert texts(bank) == ["unknown", "newcomer"]


def test_a_text_that_was_written_again_is_not_the_first_to_leave(tmp_path):
    with open_bank(tmp_path / "b", capacity=2, eviction="value", retrieval=RetrievalConfig(vote_weight=1.0)) as bank:
        twice, _ = add(bank, "written twice"), add(bank, "written once")
        assert bank.add("written twice", key_text=KEYS[0], scope="rooms", step=0, generation_id=None).entry_id == twice
        add(bank, "newcomer")
        assert texts(bank) == ["written twice", "newcomer"]


@pytest.mark.parametrize("eviction", ["fifo", "lru", "value"])
def test_a_reopened_bank_evicts_the_same(tmp_path, eviction):
    survivors = []
    for reopen in (False, True):
        path = tmp_path / f"{reopen}"
        bank = open_bank(path, capacity=6, eviction=eviction)
        for i in range(6):
            add(bank, f"note {i}", step=i)
        for i in range(12):
            shown = retrieve(bank, VALUE, seed=i, step=6 + i, training=True)[0][0].entry_id
            bank.record_outcomes(6 + i, [(shown, i % 3 == 0, "t")])
        if reopen:
            bank.close()
            bank = open_bank(path, capacity=6, eviction=eviction)
        for i in range(3):
            add(bank, f"later {i}", step=20)
        survivors.append(texts(bank))
        bank.close()
    assert survivors[0] == survivors[1]


def test_a_replacement_does_not_evict(tmp_path):
    with open_bank(tmp_path / "b", capacity=2) as bank:
        first, second = add(bank, "first"), add(bank, "second")
        bank.update(second, "second, refined", key_text=KEYS[0], scope="rooms", step=1)
        assert bank.is_live(first)
        assert bank.counts()["evict"] == 0


def test_a_lowered_cap_is_reached_at_the_next_addition(tmp_path):
    with open_bank(tmp_path / "b") as bank:
        for i in range(5):
            add(bank, f"note {i}")
    with open_bank(tmp_path / "b", capacity=2) as bank:
        add(bank, "newest")
        assert texts(bank) == ["note 4", "newest"]


# --- transactions ----------------------------------------------------------------------------------------------------------------


def test_a_transaction_that_raises_leaves_file_and_memory_as_they_were(bank):
    kept = add(bank, "kept")
    before = bank.counts()
    with pytest.raises(RuntimeError, match="stop"), bank.transaction():
        add(bank, "undone", key=KEYS[1])
        bank.drop([kept], step=0)
        retrieve(bank, VALUE, text=KEYS[1], training=True)
        raise RuntimeError("stop")
    assert texts(bank) == ["kept"]
    assert bank.counts() == before
    assert retrieve(bank, VALUE)[0][0].entry_id == kept
    assert add(bank, "next") == kept + 1


def test_an_inner_failure_undoes_the_whole_even_if_it_is_caught(bank):
    with pytest.raises(RuntimeError, match="inner"), bank.transaction():
        add(bank, "outer")
        try:
            with bank.transaction():
                add(bank, "half done")
                raise RuntimeError("inner")
        except RuntimeError:
            pass
    assert len(bank) == 0
