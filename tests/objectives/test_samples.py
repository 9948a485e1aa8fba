"""Tokens, masks and log-probs of a scripted episode, locked."""

import pytest
from helpers.episodes import make_generation, make_trajectory, make_turn

from complementary_rl.objectives.samples import generation_sample, trajectory_sample
from complementary_rl.types import Turn


def test_an_episode_is_trained_exactly_where_the_actor_sampled():
    episode = make_trajectory(
        make_turn("act", (1, 2, 3), (50, 51)), make_turn("act", (4,), (60,)), make_turn("act", (5, 6), (70, 71))
    )
    sample = trajectory_sample(episode, advantage=1.5, weight=0.25)
    assert sample.token_ids == (1, 2, 3, 50, 51, 4, 60, 5, 6, 70, 71)
    assert sample.mask == (False, False, False, True, True, False, True, False, False, True, True)
    assert sample.logprobs == (0, 0, 0, -5.0, -5.1, 0, -6.0, 0, 0, -7.0, -7.1)
    assert (sample.advantage, sample.weight, sample.temperature) == (1.5, 0.25, 1.0)


def test_asking_is_an_action_of_the_actor():
    episode = make_trajectory(make_turn("ask", (1,), (50,)), make_turn("act", (2,), (60,)), entries=(7,))
    assert trajectory_sample(episode, 1.0, 1.0).mask == (False, True, False, True)


def test_an_episode_whose_context_was_full_at_once_has_nothing_to_train():
    assert trajectory_sample(make_trajectory(), 1.0, 1.0).token_ids == ()


def test_a_generation_follows_its_prompt():
    sample = generation_sample(make_generation((50, 51), temperature=0.7), advantage=-1.0, weight=0.5)
    assert sample.token_ids == (9, 50, 51)
    assert sample.mask == (False, True, True)
    assert sample.logprobs == (0, -5.0, -5.1)
    assert sample.temperature == 0.7


def test_one_episode_has_one_temperature():
    turns = make_turn("act", (1,), (50,)), Turn("act", "", (2,), make_generation((60,), temperature=0.5), "north")
    with pytest.raises(AssertionError, match="one temperature"):
        trajectory_sample(make_trajectory(*turns), 1.0, 1.0)
