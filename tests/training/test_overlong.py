"""Episodes that filled the context: counted, and kept from poisoning advantages."""

from dataclasses import replace

import pytest
from helpers.episodes import make_trajectory, make_turn

from complementary_rl.config import Overlong
from complementary_rl.training.actor_loop import _grpo_samples, with_outcome
from complementary_rl.training.metrics import rollout_metrics
from complementary_rl.types import Condition, Trajectory


def episodes() -> list[Trajectory]:
    """Won, lost, lost, and one that filled the context."""
    group = [make_trajectory(make_turn("act", (1,), (50 + i,)), id=str(i), success=i == 0) for i in range(4)]
    return [*group[:3], replace(group[3], stop_reason="context", cut_observations=2)]


def trained(overlong: Overlong) -> dict[int, tuple[float, float]]:
    """The one sampled token of each sample → its advantage and weight."""
    groups = [with_outcome(episodes(), overlong)]
    samples = _grpo_samples(groups, condition_wise=True, overlong=overlong)
    return {sample.token_ids[1]: (sample.advantage, sample.weight) for sample in samples}


def test_masked_episodes_leave_no_trace_in_their_group() -> None:
    masked = trained("mask")
    assert sorted(masked) == [50, 51, 52]
    assert masked[50] == (pytest.approx(2**0.5), pytest.approx(1 / 3))
    assert masked[51] == (pytest.approx(-(2**-0.5)), pytest.approx(1 / 3))


def test_zeroed_episodes_count_in_the_baseline_and_are_not_trained() -> None:
    zeroed, as_failures = trained("zero"), trained("train")
    assert sorted(zeroed) == [50, 51, 52]
    assert sorted(as_failures) == [50, 51, 52, 53]
    assert as_failures[50] == (pytest.approx(3**0.5), 1 / 4)
    assert zeroed == {token: value for token, value in as_failures.items() if token != 53}


def test_a_group_that_filled_the_context_to_the_last_trains_nothing() -> None:
    group = [replace(episode, stop_reason="context") for episode in episodes()]
    assert with_outcome(group, "mask") == []
    assert _grpo_samples([[]], condition_wise=True, overlong="mask") == []


def test_they_are_counted_by_condition() -> None:
    free, guided = episodes(), [replace(episode, condition=Condition.GUIDED) for episode in episodes()[:2]]
    metrics = rollout_metrics([*free, *guided])
    assert metrics["free"]["overlong"] == 1
    assert metrics["free"]["cut_observations"] == 2
    assert not {"overlong", "cut_observations", "malformed_calls"} & metrics["guided"].keys()
