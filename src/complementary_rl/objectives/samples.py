"""From records to training samples: token in, token out, with a mask on exactly what the model sampled."""

from collections.abc import Iterable
from dataclasses import dataclass

from complementary_rl.engines.protocol import TrainingSample
from complementary_rl.types import Generation, TokenIds, Trajectory


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a sequence. `logprobs` is None for tokens the model was given, and their sampling-time log-probs where it sampled
    them."""

    token_ids: TokenIds
    logprobs: tuple[float, ...] | None = None


def trajectory_sample(trajectory: Trajectory, advantage: float, weight: float) -> TrainingSample:
    """The whole episode as one sequence: per turn the prompt ids it added, then what the actor sampled, which alone is trained
    (search_and_ask calls included, since the actor chose to ask)."""
    spans = []
    for turn in trajectory.turns:
        spans.append(Span(turn.new_ids))
        spans.append(sampled(turn.generation))
    return join_spans(spans, advantage, weight, temperature=episode_temperature(trajectory))


def generation_sample(generation: Generation, advantage: float, weight: float) -> TrainingSample:
    """A single generation after its prompt."""
    spans = [Span(generation.prompt_ids), sampled(generation)]
    return join_spans(spans, advantage, weight, temperature=generation.temperature)


def sampled(generation: Generation) -> Span:
    """The trained span of a generation, its stop token included."""
    assert len(generation.token_ids) == len(generation.logprobs)
    return Span(generation.token_ids, generation.logprobs)


def join_spans(spans: Iterable[Span], advantage: float, weight: float, *, temperature: float) -> TrainingSample:
    """Concatenate spans; mask and log-probs follow from them."""
    token_ids: list[int] = []
    mask: list[bool] = []
    logprobs: list[float] = []
    for span in spans:
        token_ids.extend(span.token_ids)
        mask.extend([span.logprobs is not None] * len(span.token_ids))
        logprobs.extend(span.logprobs if span.logprobs is not None else [0.0] * len(span.token_ids))
    assert not mask or not mask[0], "a sequence starts with a prompt: nothing predicts its first token"
    return TrainingSample(tuple(token_ids), tuple(mask), tuple(logprobs), advantage, weight, temperature)


def episode_temperature(trajectory: Trajectory) -> float:
    """The temperature of an episode's samples, which is one; 1 for an episode without any turn."""
    temperatures = {turn.generation.temperature for turn in trajectory.turns}
    assert len(temperatures) <= 1, f"an episode is sampled at one temperature, {trajectory.id} has {sorted(temperatures)}"
    return temperatures.pop() if temperatures else 1.0
