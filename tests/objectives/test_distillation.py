"""Self-distillation: experience and tool turns gone, labels shifted, only the actor's actions trained, nothing twice."""

from dataclasses import replace

import pytest
import torch
from helpers.episodes import GUIDED_PROMPT, make_trajectory, make_turn
from helpers.losses import random_inputs, value_and_gradient
from hypothesis import given
from hypothesis import strategies as st

from complementary_rl.engines.protocol import LossInputs
from complementary_rl.objectives.distillation import NextTokenLoss, distillation_episodes, distillation_samples, guided_lead
from complementary_rl.objectives.grpo import GrpoLoss
from complementary_rl.objectives.samples import trajectory_samples
from complementary_rl.types import Trajectory


def test_the_entry_and_every_question_leave_the_context():
    episode = make_trajectory(
        make_turn("act", GUIDED_PROMPT, (50, 51)),
        make_turn("ask", (1, 2), (666, 666)),
        make_turn("act", (666, 2), (60,)),
        make_turn("act", (3,), (70,)),
        entries=(7,),
    )
    (sample,) = distillation_samples([episode], of=1, token_mean=False)
    assert sample.token_ids == (100, 101, 50, 51, 1, 2, 60, 3, 70)
    assert sample.mask == (False, False, True, True, False, False, True, False, True)


def test_a_question_in_the_first_turn_leaves_the_opening_prompt():
    episode = make_trajectory(make_turn("ask", GUIDED_PROMPT, (666,)), make_turn("act", (666,), (60,)), entries=(7,))
    (sample,) = distillation_samples([episode], of=1, token_mean=False)
    assert sample.token_ids == (100, 101, 60)


def test_questions_in_a_row_and_at_the_end():
    episode = make_trajectory(
        make_turn("act", GUIDED_PROMPT, (50,)),
        make_turn("ask", (1,), (666,)),
        make_turn("ask", (666,), (666,)),
        make_turn("act", (666,), (60,)),
        make_turn("ask", (2,), (666,)),
        entries=(7,),
    )
    (sample,) = distillation_samples([episode], of=1, token_mean=False)
    assert sample.token_ids == (100, 101, 50, 1, 60)


def test_where_thinking_was_dropped_an_episode_is_several_samples_that_weigh_as_one():
    episode = make_trajectory(
        replace(make_turn("act", GUIDED_PROMPT, (70, 50)), thinking=(-1, 1)),  # the prompt's last token opens the thinking
        replace(make_turn("ask", (1, 2), (666, 666)), thinking=(0, 1), drops_thinking=True),
        make_turn("act", (666, 2), (60,)),
        replace(make_turn("act", (3,), (80,)), drops_thinking=True),
        entries=(7,),
    )
    samples = distillation_samples([episode], of=2, token_mean=False)
    # The question's own thinking is gone with it: nothing is left to drop before the last turn.
    assert [sample.token_ids for sample in samples] == [(100, 101, 70, 50), (100, 50, 1, 2, 60, 3, 80)]
    assert [sum(sample.mask) for sample in samples] == [2, 2]
    assert [sample.weight for sample in samples] == [1 / 4, 1 / 4]
    assert [sample.weight for sample in distillation_samples([episode], of=2, token_mean=True)] == [1 / 8, 1 / 8]


@given(st.lists(st.sampled_from(["act", "ask"]), min_size=1, max_size=8))
def test_only_actions_and_the_observations_before_them_are_left(kinds):
    turns = []
    for index, kind in enumerate(kinds):
        after_question = index > 0 and kinds[index - 1] == "ask"
        new_ids = GUIDED_PROMPT if index == 0 else ((666, 667) if after_question else (index,))
        turns.append(make_turn(kind, new_ids, (666,) if kind == "ask" else (1000 + index,)))
    samples = distillation_samples([make_trajectory(*turns, entries=(7,))], of=1, token_mean=False)
    acts = [index for index, kind in enumerate(kinds) if kind == "act"]
    if not acts:
        assert samples == []
        return
    (sample,) = samples
    assert not {666, 667} & set(sample.token_ids)
    assert [token for token, trained in zip(sample.token_ids, sample.mask, strict=True) if trained] == [1000 + i for i in acts]
    assert sample.token_ids[-1] == 1000 + acts[-1]


def test_without_experience_the_sample_is_the_episode():
    episode = make_trajectory(make_turn("act", (100, 101), (50, 51)), make_turn("act", (1,), (60,)))
    (sample,) = distillation_samples([episode], of=1, token_mean=False)
    (original,) = trajectory_samples(episode, 1.0, 1.0)
    assert (sample.token_ids, sample.mask) == (original.token_ids, original.mask)


def test_an_imitated_episode_weighs_as_one_of_the_batch():
    episodes = [
        make_trajectory(make_turn("act", (100,), (50, 51, 52)), id="a"),
        make_trajectory(make_turn("act", (100,), (50,)), id="b"),
    ]
    assert [sample.weight for sample in distillation_samples(episodes, of=8, token_mean=False)] == [1 / 8, 1 / 8]
    assert [sample.weight for sample in distillation_samples(episodes, of=8, token_mean=True)] == [1 / 24, 1 / 8]


@pytest.mark.parametrize(("ratio", "token_mean"), [("sequence", False), ("sequence_mean", True), ("token", True)])
def test_the_coefficient_is_an_advantage(ratio, token_mean):
    """On the policy that sampled it, imitating an episode has the gradient of GRPO with advantage 1."""
    episode = make_trajectory(make_turn("act", (100,), (50, 51, 52)), make_turn("act", (1,), (60,)))
    (sample,) = distillation_samples([episode], of=4, token_mean=token_mean)
    mask = torch.tensor([sample.mask])
    logprobs = torch.full(mask.shape, -1.5)
    one = torch.ones(1)
    imitate = LossInputs(logprobs.clone().requires_grad_(), torch.zeros_like(logprobs), mask, one, one * sample.weight)
    reinforce = LossInputs(logprobs.clone().requires_grad_(), logprobs.clone(), mask, one, one / 4)
    _, expected = value_and_gradient(GrpoLoss(ratio), reinforce)
    _, gradient = value_and_gradient(NextTokenLoss(), imitate)
    torch.testing.assert_close(gradient, expected)


def test_an_episode_is_imitated_once():
    episode = make_trajectory(make_turn("act", (100,), (50,)))
    with pytest.raises(AssertionError, match="once"):
        distillation_samples([episode, episode], of=2, token_mean=False)


def test_selection_beats_the_free_half():
    group = [
        make_trajectory(id="won", success=True, entries=(1,)),
        make_trajectory(id="lost", entries=(1,)),
        make_trajectory(id="rewarded", reward=5.0, entries=(1,)),
        make_trajectory(id="free won", success=True),
        make_trajectory(id="free lost"),
    ]
    assert [episode.id for episode in distillation_episodes(group, "guided")] == ["won"]
    assert [episode.id for episode in distillation_episodes(group, "own")] == ["won", "free won"]


def test_a_free_half_that_always_wins_cannot_be_beaten():
    group = [make_trajectory(id="g", success=True, entries=(1,)), make_trajectory(id="f", success=True)]
    assert distillation_episodes(group, "guided") == []


def test_without_a_free_half_there_is_nothing_to_beat():
    assert distillation_episodes([make_trajectory(success=True, entries=(1,))], "guided") == []


def test_loss_is_the_mean_negative_log_likelihood_of_the_tokens_themselves():
    """Logits → log-probs by the engine's convention (position t predicts token t) → the loss of a shifted language model."""
    torch.manual_seed(0)
    tokens = torch.tensor([[3, 1, 4, 1, 2]])
    mask = torch.tensor([[False, False, True, False, True]])
    logits = torch.randn(1, 5, 6, dtype=torch.float64)
    logprobs = torch.zeros(1, 5, dtype=torch.float64)
    logprobs[:, 1:] = torch.log_softmax(logits[:, :-1], -1).gather(-1, tokens[:, 1:, None]).squeeze(-1)
    one = torch.ones(1, dtype=torch.float64)
    output = NextTokenLoss()(LossInputs(logprobs.requires_grad_(), torch.zeros(1, 5), mask, one, one / 2))
    labels = tokens.masked_fill(~mask, -100)
    expected = torch.nn.functional.cross_entropy(logits[0, :-1], labels[0, 1:])
    assert output.loss.item() == pytest.approx(expected.item())
    assert output.sums == {"nll": (pytest.approx(2 * expected.item()), 2)}


def test_observations_are_unsupervised_and_advantages_play_no_part():
    inputs = random_inputs(0)
    _, gradient = value_and_gradient(NextTokenLoss(), inputs)
    torch.testing.assert_close(gradient, -inputs.weights[:, None] * inputs.mask)


def test_the_lead_of_the_guided_half_is_what_is_left_to_consolidate():
    def half(condition: str, wins: list[bool]) -> list[Trajectory]:
        base = make_trajectory(entries=(7,) if condition == "guided" else ())
        return [replace(base, id=f"{condition}{i}", success=won) for i, won in enumerate(wins)]

    guided, free = half("guided", [True, True, False, True]), half("free", [True, False])
    assert guided_lead(guided + free) == 0.25
    assert guided_lead(half("guided", [False]) + free) == 0.0
    assert guided_lead(guided) == guided_lead(free) == guided_lead([]) == 0.0
