"""Choosing entries: Eq 6 against hand numbers, value-aware scoring, floors, scopes, sets, and what training moves."""

import math

import numpy as np
import pytest
from helpers.banks import KEYS, AngleEmbedder, add, open_bank, retrieve

from complementary_rl.config import RetrievalConfig
from complementary_rl.experience import retrieval
from complementary_rl.experience.bank import Query
from complementary_rl.experience.live import Candidates, Pools
from complementary_rl.experience.retrieval import Choice, deal

PAPER = RetrievalConfig(score="paper", demote_probability=1.0)
VALUE = RetrievalConfig(score="value")


def pool(similarity, *, retrieved=0, shown=0, successes=0, failures=0, votes=0, last=-1, ids=None) -> Candidates:
    n = len(similarity)

    def column(value):
        return np.broadcast_to(np.array(value, dtype=np.int64), (n,)).copy()

    return Candidates(
        ids=np.arange(n, 0, -1) if ids is None else np.array(ids),
        similarity=np.array(similarity, dtype=np.float64),
        retrieved=column(retrieved),
        shown=column(shown),
        successes=column(successes),
        failures=column(failures),
        votes=column(votes),
        last_retrieved=column(last),
    )


def choose(candidates, wanted, config, *, seed, step, training):
    """The choices of one query."""
    [choices] = retrieval.choose(pools(candidates), [wanted], config, seeds=[seed], step=step, training=training)
    return choices


def pools(*candidates):
    """Pools of several queries."""
    joined = Candidates(*(np.concatenate([getattr(c, name) for c in candidates]) for name in Candidates.__slots__))
    return Pools(joined, np.array([len(c) for c in candidates]))


def trim(candidates, size, config):
    """The pool of one query, trimmed."""
    return retrieval.trim(pools(candidates), [size], config).candidates


def scores(candidates, config, *, seed, step=0, training):
    """The score of every candidate, in their order."""
    by_id = {c.entry_id: c.score for c in choose(candidates, len(candidates), config, seed=seed, step=step, training=training)}
    return np.array([by_id[entry_id] for entry_id in candidates.ids.tolist()])


# --- Eq 6 ------------------------------------------------------------------------------------------------------------------------


def test_paper_score_by_hand():
    candidates = pool([0.9, 0.8, 0.8, 0.1], retrieved=[0, 1, 3, 0], last=[-1, 7, 2, -1])
    found = scores(candidates, PAPER, seed=0, step=8, training=True)
    # Rank scores 1, 1 − 1/4 for both of the tie, 1 − 3/4; λ = 0.4; only the second was retrieved within one step.
    expected = [1.0, 0.75 - 0.4 * math.log(2) - 1, 0.75 - 0.4 * math.log(4), 0.25]
    np.testing.assert_allclose(found, expected)


def test_recency_reaches_back_recency_steps_and_zero_turns_it_off():
    candidates = pool([0.9] * 3, last=[5, 4, 3])

    def demoted(steps, step=6):
        config = PAPER.model_copy(update={"recency_steps": steps})
        return (scores(candidates, config, seed=0, step=step, training=True) < 0.5).tolist()

    assert demoted(0) == [False, False, False]
    assert demoted(1) == [True, False, False]
    assert demoted(2) == [True, True, False]
    assert demoted(1, step=5) == [True, True, False]


def test_demotion_happens_with_its_probability_by_the_seed():
    candidates = pool([0.9] * 4000, last=5)
    config = RetrievalConfig(score="paper", demote_probability=0.3)

    def demoted(seed):
        return scores(candidates, config, seed=seed, step=5, training=True) < 0.5

    assert demoted(1).mean() == pytest.approx(0.3, abs=0.03)
    assert (demoted(1) == demoted(1)).all()
    assert (demoted(1) != demoted(2)).any()


def test_nothing_is_recent_in_evaluation():
    candidates = pool([0.9, 0.8], last=5)
    np.testing.assert_allclose(scores(candidates, PAPER, seed=0, step=5, training=False), [1.0, 0.5])


def test_ties_go_to_the_more_similar_then_to_the_newer():
    candidates = pool([0.9, 0.9, 0.5], ids=[7, 3, 9], retrieved=1)
    config = PAPER.model_copy(update={"diversity_lambda": 0.0})
    assert [c.entry_id for c in choose(candidates, 3, config, seed=0, step=0, training=False)] == [7, 3, 9]


def test_the_paper_takes_the_pool_of_the_nearest_and_no_more(tmp_path):
    config = RetrievalConfig(score="paper", pool_factor=2)
    with open_bank(tmp_path / "b", embedder=AngleEmbedder()) as bank:
        near = add(bank, "near one", key="a @0.9")
        second = add(bank, "second", key="b @0.8")
        add(bank, "never used but third", key="c @0.7")
        for _ in range(20):
            bank.retrieve([Query("q @1", "rooms", 2, 0)], step=0, retrieval=config, training=True)
        chosen = {r.entry_id for _ in range(3) for hand in retrieve(bank, config, text="q @1") for r in hand}
        assert chosen <= {near, second}


@pytest.mark.parametrize(
    "config", [PAPER.model_copy(update={"demote_probability": 0.5}), VALUE, VALUE.model_copy(update={"trial_rate": 0.5})]
)
def test_queries_scored_together_are_scored_as_if_alone(config):
    random = np.random.default_rng(0)
    several = [
        pool(
            np.sort(random.choice([0.9, 0.8, 0.5, 0.4], size=n))[::-1],
            retrieved=random.integers(5, size=n),
            shown=random.integers(3, size=n),
            successes=random.integers(9, size=n),
            last=random.integers(-1, 9, size=n),
        )
        for n in random.integers(0, 12, size=60)
    ]
    wanted = random.integers(1, 5, size=60).tolist()
    together = retrieval.choose(pools(*several), wanted, config, seeds=range(60), step=8, training=True)
    assert together == [
        choose(p, w, config, seed=i, step=8, training=True) for i, (p, w) in enumerate(zip(several, wanted, strict=True))
    ]


def test_a_demotion_that_could_not_change_the_choice_is_not_drawn_but_every_other_is():
    """The first of one query is recent, the first of the other is not; both see what drawing for every entry would give."""
    config = PAPER.model_copy(update={"demote_probability": 1.0, "diversity_lambda": 0.0})
    assert [c.entry_id for c in choose(pool([0.9, 0.8, 0.7], last=[7, 7, -1]), 1, config, seed=0, step=8, training=True)] == [1]
    assert [c.entry_id for c in choose(pool([0.9, 0.8, 0.7], last=[-1, 7, 7]), 1, config, seed=0, step=8, training=True)] == [3]
    assert [c.entry_id for c in choose(pool([0.9, 0.8, 0.7], last=[-1, 7, -1]), 2, config, seed=0, step=8, training=True)] == [3, 1]


def test_training_rotates_through_equals_under_eq_6(tmp_path):
    with open_bank(tmp_path / "b") as bank:
        ids = [add(bank, f"note {i}") for i in range(4)]
        shown = [retrieve(bank, PAPER, step=step, training=True)[0][0].entry_id for step in range(4)]
        assert sorted(shown) == ids


# --- value-aware -----------------------------------------------------------------------------------------------------------------


def test_evaluation_takes_the_posterior_mean_times_squared_cosine():
    candidates = pool([1.0, 0.5, -0.2], successes=[3, 30, 30], failures=[1, 0, 0])
    found = scores(candidates, VALUE, seed=0, training=False)
    np.testing.assert_allclose(found, [3.4 / 6.4, 30.4 / 32.4 * 0.25, 0.0])


def test_thompson_sampling_repeats_by_seed_and_follows_the_posterior():
    candidates = pool([1.0, 1.0], successes=[8, 1], failures=[2, 5])
    draws = np.array([scores(candidates, VALUE, seed=seed, training=True) for seed in range(3000)])
    np.testing.assert_array_equal(draws[5], scores(candidates, VALUE, seed=5, training=True))
    np.testing.assert_allclose(draws.mean(axis=0), [8.4 / 12.4, 1.4 / 8.4], atol=0.01)
    assert 0 < (draws[:, 1] > draws[:, 0]).mean() < 0.1


def test_a_proven_entry_beats_new_ones_because_the_prior_is_pessimistic():
    candidates = pool([1.0] * 5, successes=[0] * 4 + [6], failures=[0] * 4 + [2])

    def chosen_share(config):
        return np.mean([choose(candidates, 1, config, seed=seed, step=0, training=True)[0].entry_id == 1 for seed in range(500)])

    assert chosen_share(VALUE) > 0.7
    assert chosen_share(VALUE.model_copy(update={"prior_success": 1.0, "prior_failure": 1.0})) < 0.5


def test_votes_count_as_successes_of_their_weight():
    candidates = pool([1.0, 1.0], successes=[1, 1], failures=[3, 3], votes=[4, 0])
    weighty = VALUE.model_copy(update={"vote_weight": 0.5})
    np.testing.assert_allclose(scores(candidates, weighty, seed=0, training=False), [3.4 / 8.4, 1.4 / 6.4])
    draws = np.array([scores(candidates, weighty, seed=seed, training=True) for seed in range(3000)])
    np.testing.assert_allclose(draws.mean(axis=0), [3.4 / 8.4, 1.4 / 6.4], atol=0.02)


def test_among_the_untried_those_with_votes_stay_in_the_pool():
    candidates = pool([0.5] * 6, votes=[0, 0, 0, 0, 3, 0])
    assert trim(candidates, 2, VALUE.model_copy(update={"vote_weight": 1.0})).ids.tolist() == [6, 2]
    assert trim(candidates, 2, VALUE.model_copy(update={"vote_weight": 0.0})).ids.tolist() == [6, 5]


def test_a_crowded_key_keeps_its_best_and_its_newest_in_the_pool():
    candidates = pool([1.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5], shown=[1, 0, 0, 0, 4, 4, 4], successes=[0, 0, 0, 0, 1, 3, 2])
    kept = trim(candidates, 5, VALUE)
    assert kept.ids.tolist() == [7, 6, 5, 2, 1]
    assert kept.successes.tolist() == [0, 0, 0, 3, 2]
    assert trim(candidates, 5, PAPER).ids.tolist() == [7, 6, 5, 4, 3]
    assert trim(candidates, 7, VALUE).ids.tolist() == candidates.ids.tolist()


@pytest.mark.parametrize(("shown", "kept"), [([0] * 6, [6, 5, 4, 3]), ([1] * 6, [6, 5, 4, 3]), ([0, 1, 1, 1, 1, 1], [6, 5, 4, 3])])
def test_either_half_of_a_pool_takes_what_the_other_leaves(shown, kept):
    assert trim(pool([0.5] * 6, shown=shown), 4, VALUE).ids.tolist() == kept


def test_a_crowd_of_unknown_entries_does_not_drown_a_proven_one(tmp_path):
    with open_bank(tmp_path / "b") as bank:
        proven = add(bank, "proven")
        bank.record_outcomes(0, [(proven, i % 5 > 0, "t") for i in range(50)])
        for i in range(400):
            add(bank, f"note {i}")
        chosen = [retrieve(bank, VALUE.model_copy(update={"pool_factor": 8}), seed=s, training=True)[0][0] for s in range(100)]
        assert np.mean([c.entry_id == proven for c in chosen]) > 0.6


def test_a_proven_entry_stays_in_the_pool_however_many_share_its_key(tmp_path):
    with open_bank(tmp_path / "b") as bank:
        proven = add(bank, "proven")
        bank.record_outcomes(0, [(proven, True, "t")] * 5)
        for i in range(100):
            add(bank, f"note {i}")
        assert retrieve(bank, VALUE)[0][0].entry_id == proven


def test_trials_reserve_places_for_what_was_never_shown():
    candidates = pool([1.0] * 6, shown=[9, 9, 9, 9, 0, 0], successes=[9, 9, 9, 9, 0, 0])
    never, always = (VALUE.model_copy(update={"trial_rate": rate}) for rate in (0.0, 1.0))
    assert all({1, 2} == {c.entry_id for c in choose(candidates, 2, always, seed=s, step=0, training=True)} for s in range(20))
    assert not any({1, 2} & {c.entry_id for c in choose(candidates, 2, never, seed=s, step=0, training=True)} for s in range(20))
    assert not {1, 2} & {c.entry_id for c in choose(candidates, 2, always, seed=0, step=0, training=False)}


def test_trials_have_their_share_and_fall_back_when_all_were_shown():
    candidates = pool([1.0] * 6, shown=[9, 9, 9, 9, 0, 0], successes=[9, 9, 9, 9, 0, 0])
    config = VALUE.model_copy(update={"trial_rate": 0.3})
    share = np.mean([choose(candidates, 1, config, seed=s, step=0, training=True)[0].entry_id in (1, 2) for s in range(2000)])
    assert share == pytest.approx(0.3, abs=0.04)
    all_shown = pool([1.0] * 3, shown=1)
    assert len(choose(all_shown, 2, VALUE.model_copy(update={"trial_rate": 1.0}), seed=0, step=0, training=True)) == 2


# --- floors, scopes, sets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", ["paper", "value"])
def test_nothing_below_the_floor_is_offered(tmp_path, score):
    config = RetrievalConfig(score=score, min_similarity=0.8)
    with open_bank(tmp_path / "b") as bank:
        add(bank, "about another room", key=KEYS[1])
        assert retrieve(bank, config) == []
        mine = add(bank, "about this room", key=KEYS[0])
        assert [[r.entry_id for r in hand] for hand in retrieve(bank, config, k=3)] == [[mine]]


def test_an_empty_bank_offers_nothing(tmp_path):
    with open_bank(tmp_path / "b") as bank:
        assert bank.retrieve([Query("x", "s", 1, 0), Query("y", "t", 2, 0, 2)], step=0, retrieval=PAPER, training=True) == [[], []]
        assert bank.retrieve([], step=0, retrieval=PAPER, training=True) == []


def test_other_scopes_are_searched_only_on_request_and_only_for_what_is_missing(tmp_path):
    across = PAPER.model_copy(update={"cross_task": True})
    with open_bank(tmp_path / "b", embedder=AngleEmbedder()) as bank:
        near = [add(bank, f"near {i}", key=f"{i} @0.99", scope="other") for i in range(2)]
        own = add(bank, "own note", key="own @0.3", scope="mine")
        farther = add(bank, "farther", key="far @0.5", scope="third")

        def chosen(config, k):
            hands = retrieve(bank, config, text="q @1", scope="mine", k=k)
            return [r.entry_id for hand in hands for r in hand]

        assert chosen(PAPER, 3) == [own]
        assert chosen(across, 1) == [own]
        assert chosen(across, 4) == [own, near[1], near[0], farther]
        assert chosen(across.model_copy(update={"min_similarity": 0.6}), 4) == [near[1], near[0]]


def test_sets_are_dealt_like_cards():
    ranked = [Choice(i, 1.0, -i) for i in range(6)]
    assert [[c.entry_id for c in hand] for hand in deal(ranked, 3)] == [[0, 3], [1, 4], [2, 5]]
    assert [[c.entry_id for c in hand] for hand in deal(ranked[:3], 2)] == [[0, 2], [1]]
    assert [[c.entry_id for c in hand] for hand in deal(ranked[:1], 4)] == [[0]]
    assert deal([], 4) == []


@pytest.mark.parametrize("score", ["paper", "value"])
def test_the_sets_of_a_group_are_distinct(tmp_path, score):
    with open_bank(tmp_path / "b") as bank:
        ids = [add(bank, f"note {i}") for i in range(7)]
        hands = retrieve(bank, RetrievalConfig(score=score), k=2, sets=3, training=True)
        chosen = [r.entry_id for hand in hands for r in hand]
        assert [len(hand) for hand in hands] == [2, 2, 2]
        assert len(set(chosen)) == 6
        assert set(chosen) <= set(ids)


def test_what_is_retrieved_carries_text_similarity_and_score(tmp_path):
    with open_bank(tmp_path / "b", embedder=AngleEmbedder()) as bank:
        add(bank, "the exit is in the north", key="k @0.5")
        found = retrieve(bank, VALUE, text="q @1")[0][0]
        assert found.text == "the exit is in the north"
        assert found.similarity == pytest.approx(0.5)
        assert found.score == pytest.approx(0.25 * 0.4 / 2.4)


# --- counters --------------------------------------------------------------------------------------------------------------------


def test_training_counts_and_evaluation_moves_nothing(tmp_path):
    with open_bank(tmp_path / "b") as bank:
        entry = add(bank, "note")
        retrieve(bank, PAPER, step=4, training=False)
        assert bank.entry(entry).stats.retrieved == 0
        retrieve(bank, PAPER, step=4, training=True)
        retrieve(bank, PAPER, step=6, training=True)
        stats = bank.entry(entry).stats
        assert (stats.retrieved, stats.last_retrieved_step, stats.shown) == (2, 6, 0)
        assert bank.counts()["never_used_share"] == 0


def test_queries_of_one_call_do_not_see_each_other(tmp_path):
    with open_bank(tmp_path / "b") as bank:
        first, second = add(bank, "first"), add(bank, "second")
        queries = [Query(KEYS[0], "rooms", 1, seed) for seed in range(3)]
        together = bank.retrieve(queries, step=0, retrieval=PAPER, training=True)
        assert [sets[0][0].entry_id for sets in together] == [second] * 3
        assert bank.entry(second).stats.retrieved == 3
        assert retrieve(bank, PAPER, step=0, training=True)[0][0].entry_id == first


def test_outcomes_steer_the_value_of_later_retrievals(tmp_path):
    with open_bank(tmp_path / "b") as bank:
        right, wrong = add(bank, "right"), add(bank, "wrong")
        assert retrieve(bank, VALUE)[0][0].entry_id == wrong  # the newer of two unknowns
        bank.record_outcomes(0, [(right, True, "a"), (wrong, False, "b"), (wrong, None, "c")])
        assert retrieve(bank, VALUE)[0][0].entry_id == right
        assert bank.entry(wrong).stats.failures == 1
        assert bank.entry(wrong).stats.shown == 2
