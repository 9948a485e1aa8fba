"""Eq 4/5: hand-computed advantages and weights, and what holds for any rewards."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from complementary_rl.objectives.advantages import group_advantages, group_weights
from complementary_rl.types import Condition

G, F = Condition.GUIDED, Condition.FREE
ROOT3 = 3**0.5


def test_each_half_is_standardised_by_its_own_statistics():
    rewards = [1, 1, 1, 0, 1, 0, 0, 0]
    advantages, weights = group_advantages(rewards, [G] * 4 + [F] * 4, condition_wise=True)
    # Means 3/4 and 1/4, both with std √3/4.
    assert advantages == pytest.approx([1 / ROOT3] * 3 + [-ROOT3] + [ROOT3] + [-1 / ROOT3] * 3)
    assert weights == pytest.approx([1 / 8] * 8)


def test_pooled_shares_one_baseline():
    rewards = [1, 1, 1, 0, 1, 0, 0, 0]
    advantages, weights = group_advantages(rewards, [G] * 4 + [F] * 4, condition_wise=False)
    assert advantages == pytest.approx([1, 1, 1, -1, 1, -1, -1, -1])
    assert weights == pytest.approx([1 / 8] * 8)


def test_order_of_members_does_not_matter():
    mixed, _ = group_advantages([1, 0, 0, 0, 1, 1], [G, F, G, F, G, F], condition_wise=True)
    assert mixed == pytest.approx([2**-0.5, -(2**-0.5), -(2**0.5), -(2**-0.5), 2**-0.5, 2**0.5])


@pytest.mark.parametrize("condition_wise", [True, False])
@pytest.mark.parametrize("condition", [G, F])
def test_a_group_of_one_condition(condition, condition_wise):
    advantages, weights = group_advantages([1, 0, 0, 0], [condition] * 4, condition_wise=condition_wise)
    assert advantages == pytest.approx([ROOT3, -1 / ROOT3, -1 / ROOT3, -1 / ROOT3])
    assert weights == pytest.approx([1 / 4] * 4)


def test_a_half_without_spread_learns_nothing_from_itself():
    advantages, _ = group_advantages([1, 1, 1, 0], [G, G, F, F], condition_wise=True)
    assert advantages == pytest.approx([0, 0, 1, -1])


def test_rewards_equal_up_to_rounding_have_no_spread():
    advantages, _ = group_advantages([0.1 + 0.2, 0.3, 0.3, 0.3], [G, G, F, F], condition_wise=False)
    assert (advantages == 0).all()


def test_halves_of_unequal_size_keep_equal_shares():
    advantages, weights = group_advantages([1, 0, 1, 0, 0], [G, G, F, F, F], condition_wise=True)
    assert weights == pytest.approx([1 / 4, 1 / 4, 1 / 6, 1 / 6, 1 / 6])
    assert advantages == pytest.approx([1, -1, 2**0.5, -(2**-0.5), -(2**-0.5)])


def test_a_lone_survivor_of_a_half_has_no_baseline():
    advantages, weights = group_advantages([1, 1, 0], [G, F, F], condition_wise=True)
    assert advantages == pytest.approx([0, 1, -1])
    assert weights == pytest.approx([1 / 2, 1 / 4, 1 / 4])
    alone, weights = group_advantages([1], [F], condition_wise=False)
    assert alone == pytest.approx([0])
    assert weights == pytest.approx([1])


conditions = st.lists(st.sampled_from([G, F]), min_size=1, max_size=12)
dyadic = st.integers(-64, 64).map(lambda n: n / 8)


@given(conditions)
def test_weights_sum_to_one_and_split_evenly_between_the_conditions_present(members):
    weights = group_weights(members)
    assert weights.sum() == pytest.approx(1)
    for condition in set(members):
        share = sum(weight for weight, member in zip(weights, members, strict=True) if member is condition)
        assert share == pytest.approx(1 / len(set(members)))


@given(st.data(), conditions, st.booleans())
def test_advantages_ignore_the_scale_and_offset_of_rewards(data, members, condition_wise):
    rewards = np.array(data.draw(st.lists(dyadic, min_size=len(members), max_size=len(members))))
    plain, _ = group_advantages(rewards, members, condition_wise=condition_wise)
    moved, _ = group_advantages(rewards * 4 + 16, members, condition_wise=condition_wise)
    assert moved == pytest.approx(plain)


@given(st.data(), conditions)
def test_condition_wise_advantages_are_centred_in_each_half(data, members):
    rewards = data.draw(st.lists(dyadic, min_size=len(members), max_size=len(members)))
    advantages, _ = group_advantages(rewards, members, condition_wise=True)
    for condition in Condition:
        own = [a for a, member in zip(advantages, members, strict=True) if member is condition]
        assert sum(own) == pytest.approx(0, abs=1e-9)
