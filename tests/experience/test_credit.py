"""Credit: outcome, relative, contrast by hand; the gate adds and never overwrites; the size of a reward plays no part."""

import pytest
from helpers.episodes import make_trajectory
from hypothesis import given
from hypothesis import strategies as st

from complementary_rl.experience.credit import Credit, group_credits, mean_credits

GROUP = [
    make_trajectory(id="g0", success=True, entries=(1,)),
    make_trajectory(id="g1", success=True, entries=(2,)),
    make_trajectory(id="g2", success=False, entries=(1,)),
    make_trajectory(id="g3", success=True, entries=(2,), answers=("ask-9",)),
    make_trajectory(id="f0", success=True),
    make_trajectory(id="f1", success=False),
    make_trajectory(id="f2", success=False),
    make_trajectory(id="f3", success=False),
]


def test_outcome():
    credits = group_credits(GROUP, "outcome")
    assert credits.entries == {1: Credit(0.0, 2), 2: Credit(1.0, 2)}
    assert credits.answers == {"ask-9": Credit(1.0, 1)}


def test_relative_to_the_free_half():
    credits = group_credits(GROUP, "relative")
    assert credits.entries == {1: Credit(0.25, 2), 2: Credit(0.75, 2)}
    assert credits.answers == {"ask-9": Credit(0.75, 1)}
    assert group_credits(GROUP[:4], "relative").entries == {}


def test_contrast_with_the_other_guided_rollouts():
    credits = group_credits(GROUP, "contrast")
    assert credits.entries == {1: Credit(-0.5, 2), 2: Credit(0.5, 2)}
    assert credits.answers == {"ask-9": Credit(pytest.approx(1 - 2 / 3), 1)}


def test_contrast_needs_another_entry_in_the_group():
    alone = [make_trajectory(id=str(i), success=i == 0, entries=(1,)) for i in range(4)]
    assert group_credits(alone, "contrast").entries == {}


def test_several_entries_in_one_rollout_each_earn_its_outcome():
    credits = group_credits([make_trajectory(success=True, entries=(5, 3, 5))], "outcome")
    assert credits.entries == {5: Credit(1.0, 1), 3: Credit(1.0, 1)}
    assert list(credits.entries) == [5, 3]


@pytest.mark.parametrize("rule", ["outcome", "relative", "contrast"])
@given(data=st.data())
def test_partial_rewards_do_not_pass_through(rule, data):
    reward = st.floats(-10, 10)
    other = [
        make_trajectory(id=t.id, success=t.success, reward=data.draw(reward), entries=t.entry_ids, answers=t.answer_ids)
        for t in GROUP
    ]
    assert group_credits(other, rule) == group_credits(GROUP, rule)


@pytest.mark.parametrize("rule", ["outcome", "relative", "contrast"])
@given(outcomes=st.lists(st.booleans(), min_size=8, max_size=8))
def test_credit_lies_between_minus_one_and_one_and_rises_with_success(rule, outcomes):
    group = [
        make_trajectory(id=t.id, success=success, entries=t.entry_ids, answers=t.answer_ids)
        for t, success in zip(GROUP, outcomes, strict=True)
    ]
    before = group_credits(group, rule).entries
    assert all(-1 <= credit.value <= 1 for credit in before.values())
    won = [make_trajectory(id="g0", success=True, entries=(1,)), *group[1:]]
    assert group_credits(won, rule).entries[1].value >= before[1].value


def test_the_gate_adds_to_the_outcome_and_never_replaces_it():
    def credit(success: bool, score: float | None) -> float:
        rollout = make_trajectory(success=success, entries=(1,))
        return group_credits([rollout], "outcome", None if score is None else {rollout.id: score}).entries[1].value

    assert credit(False, 1.0) == 0.0, "accepting what then fails must not earn a success's credit"
    assert credit(True, 0.0) == 1.0
    assert credit(True, 1.0) == 2.0
    assert credit(False, 0.0) == credit(False, None) == -1.0
    assert max(credit(False, score) for score in (0.0, 0.5, 1.0)) < min(credit(True, score) for score in (0.0, 0.5, 1.0))


def test_gate_scores_are_averaged_over_the_rollouts():
    credits = group_credits(GROUP, "outcome", {"g0": 1.0, "g2": 0.5, "g1": 0.0, "f0": 1.0})
    assert credits.entries == {1: Credit(0.75, 2), 2: Credit(1.0, 2)}


def test_the_free_half_earns_nothing_for_anyone():
    assert group_credits(GROUP[4:], "outcome").entries == {}


def test_mean_over_all_rollouts_that_used_a_generation():
    means = mean_credits([("b", Credit(1.0, 1)), ("a", Credit(0.5, 2)), ("b", Credit(-1.0, 3))])
    assert means == {"b": Credit(-0.5, 4), "a": Credit(0.5, 2)}
    assert list(means) == ["b", "a"]
