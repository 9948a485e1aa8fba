"""Advantages and weights of one group of rollouts (Eq 4/5 of arXiv 2603.17621).

A group's rollouts share a task and an initial state; each was shown experience (guided) or not (free).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from complementary_rl.types import Condition

MINIMUM_MEMBERS = 2
"""Fewest rollouts that give each other a baseline; a smaller set gets advantage 0."""

RELATIVE_SPREAD_FLOOR = 1e-9
"""Rewards whose range is below this share of their magnitude are equal up to rounding (sums of step rewards in another order)."""

Floats = NDArray[np.float64]


def group_advantages(rewards: Sequence[float], conditions: Sequence[Condition], *, condition_wise: bool) -> tuple[Floats, Floats]:
    """Advantages [K] and weights [K] of a group of K rollouts.

    `condition_wise` is Eq 4: each half is standardised by the mean and standard deviation of its own rewards. Without it the
    statistics are pooled over the group (the paper's ablation) while the weights stay those of the halves. A group of one
    condition (all guided, or all free in warm-up) is the same in both.
    """
    assert len(rewards) == len(conditions)
    values = np.asarray(rewards, dtype=np.float64)
    assert np.isfinite(values).all(), "environments' rewards are checked when they are played"
    weights = group_weights(conditions)
    if not condition_wise:
        return standardise(values), weights
    advantages = np.zeros_like(values)
    for members in _halves(conditions):
        advantages[members] = standardise(values[members])
    return advantages, weights


def group_weights(conditions: Sequence[Condition]) -> Floats:
    """Weights [K] of Eq 5, summing to 1: each condition that is present has an equal share, divided by its own number of rollouts.

    With both halves that is ½·1/K_c even where they differ in size, because a member was lost to its environment or a guided
    rollout became free when nothing was similar enough to be shown; with one condition it is 1/K.
    """
    weights = np.zeros(len(conditions))
    halves = _halves(conditions)
    for members in halves:
        weights[members] = 1.0 / (len(halves) * len(members))
    return weights


def standardise(rewards: Floats) -> Floats:
    """(R − mean) / std with the population's std; zeros for equal rewards and for fewer than `MINIMUM_MEMBERS` of them."""
    if len(rewards) < MINIMUM_MEMBERS:
        return np.zeros_like(rewards)
    if np.ptp(rewards) <= RELATIVE_SPREAD_FLOOR * np.abs(rewards).max():
        return np.zeros_like(rewards)
    return np.asarray((rewards - rewards.mean()) / rewards.std())


def _halves(conditions: Sequence[Condition]) -> list[NDArray[np.intp]]:
    labels = np.asarray([str(condition) for condition in conditions])
    found = [np.flatnonzero(labels == condition.value) for condition in Condition]
    return [members for members in found if len(members)]
