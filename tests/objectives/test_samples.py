"""Tokens, masks and log-probs of a scripted episode, locked."""

from dataclasses import replace

import pytest
import torch
from helpers.episodes import make_generation, make_trajectory, make_turn
from helpers.losses import value_and_gradient

from complementary_rl.engines.protocol import LossInputs
from complementary_rl.objectives.grpo import GrpoLoss
from complementary_rl.objectives.samples import generation_sample, trajectory_samples
from complementary_rl.types import Trajectory, Turn


def test_an_episode_is_trained_exactly_where_the_actor_sampled():
    episode = make_trajectory(
        make_turn("act", (1, 2, 3), (50, 51)), make_turn("act", (4,), (60,)), make_turn("act", (5, 6), (70, 71))
    )
    (sample,) = trajectory_samples(episode, advantage=1.5, weight=0.25)
    assert sample.token_ids == (1, 2, 3, 50, 51, 4, 60, 5, 6, 70, 71)
    assert sample.mask == (False, False, False, True, True, False, True, False, False, True, True)
    assert sample.logprobs == (0, 0, 0, -5.0, -5.1, 0, -6.0, 0, 0, -7.0, -7.1)
    assert (sample.advantage, sample.weight, sample.temperature) == (1.5, 0.25, 1.0)


def test_asking_is_an_action_of_the_actor():
    episode = make_trajectory(make_turn("ask", (1,), (50,)), make_turn("act", (2,), (60,)), entries=(7,))
    (sample,) = trajectory_samples(episode, 1.0, 1.0)
    assert sample.mask == (False, True, False, True)


def test_an_episode_whose_context_was_full_at_once_has_nothing_to_train():
    assert trajectory_samples(make_trajectory(), 1.0, 1.0) == []


def test_a_generation_follows_its_prompt():
    sample = generation_sample(make_generation((50, 51), temperature=0.7), advantage=-1.0, weight=0.5)
    assert sample.token_ids == (9, 50, 51)
    assert sample.mask == (False, True, True)
    assert sample.logprobs == (0, -5.0, -5.1)
    assert sample.temperature == 0.7


def thinking_episode() -> Trajectory:
    """Token 7x is thinking, 9x what was given, 5x what was said."""
    return make_trajectory(
        replace(make_turn("act", (90, 91), (70, 71, 50)), thinking=(0, 2)),
        replace(make_turn("act", (92,), (72, 51)), thinking=(-1, 1), drops_thinking=True),
        replace(make_turn("ask", (93,), (73, 52)), thinking=(0, 1)),
        replace(make_turn("act", (94,), (53,)), drops_thinking=True),
        replace(make_turn("act", (95,), (54, 55)), drops_thinking=True),
    )


def test_an_episode_that_drops_thinking_is_a_sample_for_each_run_of_prompts_that_extend_each_other():
    samples = trajectory_samples(thinking_episode(), advantage=2.0, weight=0.5)
    assert [sample.token_ids for sample in samples] == [
        (90, 91, 70, 71, 50),
        (90, 91, 50, 92, 72, 51, 93, 73, 52),  # the third turn's message drops nothing: one run with the second
        (90, 91, 50, 51, 93, 52, 94, 53, 95, 54, 55),  # the fifth has nothing to drop; −1 took the 92 that opened the thinking
    ]
    trained = [[t for t, own in zip(sample.token_ids, sample.mask, strict=True) if own] for sample in samples]
    assert trained == [[70, 71, 50], [72, 51, 73, 52], [53, 54, 55]], "every token is trained once, where it was sampled"
    assert [sample.logprobs[-1] for sample in samples] == [-5.0, -5.2, -5.5]
    assert {sample.advantage for sample in samples} == {2.0}
    assert [sample.weight for sample in samples] == pytest.approx([0.5 * 3 / 10, 0.5 * 4 / 10, 0.5 * 3 / 10])


@pytest.mark.parametrize("ratio", ["token", "sequence_mean"])
def test_split_or_not_an_episode_pulls_the_same_on_policy(ratio):
    whole = replace(thinking_episode(), turns=tuple(replace(t, drops_thinking=False) for t in thinking_episode().turns))
    gradients = []
    for episode in (whole, thinking_episode()):
        pulls = []
        for sample in trajectory_samples(episode, advantage=2.0, weight=0.5):
            one = torch.ones(1)
            old = torch.tensor([sample.logprobs])
            inputs = LossInputs(old.clone().requires_grad_(), old, torch.tensor([sample.mask]), 2 * one, sample.weight * one)
            _, gradient = value_and_gradient(GrpoLoss(ratio), inputs)
            pulls += gradient[0][list(sample.mask)].tolist()
        gradients.append(pulls)
    assert gradients[0] == pytest.approx(gradients[1])


def test_one_episode_has_one_temperature():
    turns = make_turn("act", (1,), (50,)), Turn("act", "", (2,), make_generation((60,), temperature=0.5), "north")
    with pytest.raises(AssertionError, match="one temperature"):
        trajectory_samples(make_trajectory(*turns), 1.0, 1.0)
