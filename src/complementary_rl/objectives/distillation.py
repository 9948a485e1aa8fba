"""Next-token self-distillation: guided wins are learnt as if the actor had found them alone (arXiv 2603.17621, ablation).

guided episode                        sample
prompt with the entry       →         prompt without it
observation, act            →         observation, ACT          (capitals: trained)
observation, ask, answer, act   →     observation, ACT
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch

from complementary_rl.engines.protocol import LossInputs, LossOutput, TrainingSample
from complementary_rl.objectives.ratios import metric_sums
from complementary_rl.objectives.samples import episode_temperature, turn_samples
from complementary_rl.types import Condition, Trajectory, Turn

Source = Literal["guided", "own"]


def distillation_episodes(group: Sequence[Trajectory], source: Source) -> list[Trajectory]:
    """The episodes of one group worth imitating.

    "guided": guided successes whose reward is above the mean reward of the group's free half; none where there is no free half
    to beat. "own": every success, whatever it was shown (the imitation control of the baseline).
    """
    if source == "own":
        return [episode for episode in group if episode.success]
    free = [episode.reward for episode in group if episode.condition is Condition.FREE]
    if not free:
        return []
    bar = sum(free) / len(free)
    return [episode for episode in group if episode.condition is Condition.GUIDED and episode.success and episode.reward > bar]


def guided_lead(episodes: Sequence[Trajectory]) -> float:
    """How far the success of guided episodes is above that of free ones, 0 where it is not: what there is to consolidate.

    0 where either kind is missing.
    """
    halves = {condition: [episode.success for episode in episodes if episode.condition is condition] for condition in Condition}
    if not all(halves.values()):
        return 0.0
    guided, free = (sum(halves[condition]) / len(halves[condition]) for condition in (Condition.GUIDED, Condition.FREE))
    return max(0.0, guided - free)


def distillation_samples(episodes: Sequence[Trajectory], *, of: int, token_mean: bool) -> list[TrainingSample]:
    """The samples of the episodes, in order; an episode is one, or more where thinking was dropped (`trajectory_samples`), or none if
    the actor never acted.

    An episode weighs 1/`of`, as one of the `of` episodes of the batch does in the GRPO term, so that the coefficient of this loss is
    an advantage: 0.3 pulls an imitated episode as an advantage of 0.3 would, and a batch with one lucky win is not as loud as one
    with thirty. `token_mean` divides by the episode's trained tokens, for the ratio forms that average over tokens.

    The opening prompt is the one without experience; a search_and_ask call disappears together with its answer, so that the action
    that followed stands right after the observation that led to it. Only the actor's own actions are trained.
    """
    assert len({episode.id for episode in episodes}) == len(episodes), "an episode is imitated once"
    assert len(episodes) <= of
    samples = []
    for episode in episodes:
        turns, temperature = _without_experience(episode), episode_temperature(episode)
        samples += turn_samples(turns, advantage=1.0, weight=1.0 / of, temperature=temperature)
    return [replace(sample, weight=sample.weight / sum(sample.mask)) for sample in samples] if token_mean else samples


def _without_experience(trajectory: Trajectory) -> list[Turn]:
    turns: list[Turn] = []
    asked = False
    for index, turn in enumerate(trajectory.turns):
        if not asked:
            prompt, drops = turn.new_ids if index else trajectory.free_prompt_ids, turn.drops_thinking
        asked = turn.kind == "ask"
        if not asked:
            # Sampling-time log-probs belong to another context and are not carried over.
            generation = replace(turn.generation, logprobs=(0.0,) * len(turn.generation.token_ids))
            turns.append(replace(turn, new_ids=prompt, drops_thinking=drops, generation=generation))
    return turns


@dataclass(frozen=True, slots=True)
class NextTokenLoss:
    """−Σ_i w_i Σ_t log π_it over trained tokens, with the weights of `distillation_samples`.

    Shifted by construction: `LossInputs.logprobs[:, t]` is the log-probability of token t given the tokens before it.
    Advantages are not used. Sum over tokens: `nll`.
    """

    needs_reference: ClassVar[bool] = False
    needs_entropy: ClassVar[bool] = False

    def __call__(self, inputs: LossInputs) -> LossOutput:
        """`LossInputs` of B sequences to a scalar loss."""
        nll = torch.where(inputs.mask, -inputs.logprobs, torch.zeros_like(inputs.logprobs))
        loss = (inputs.weights.unsqueeze(1) * nll).sum()
        return LossOutput(loss, metric_sums(inputs.mask.sum(), nll=nll.sum()))
