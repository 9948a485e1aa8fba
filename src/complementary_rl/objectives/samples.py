"""From records to training samples: token in, token out, with a mask on exactly what the model sampled."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from complementary_rl.chat.thinking import prompt_runs
from complementary_rl.engines.protocol import TrainingSample
from complementary_rl.types import Generation, TokenIds, Trajectory, Turn


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a sequence. `logprobs` is None for tokens the model was given, and their sampling-time log-probs where it sampled
    them; `allowed` as in `Generation`."""

    token_ids: TokenIds
    logprobs: tuple[float, ...] | None = None
    allowed: tuple[TokenIds, ...] = ()


def trajectory_samples(trajectory: Trajectory, advantage: float, weight: float) -> list[TrainingSample]:
    """The episode as sequences: per turn the prompt ids it added, then what the actor sampled, which alone is trained (search_and_ask
    calls included, since the actor chose to ask).

    That is one sequence, or where thinking was dropped one for each run of turns whose prompts extend each other (`prompt_runs`). Each
    has the episode's advantage, and they share its weight by their trained tokens. So for a loss that averages over tokens the
    episode counts as it would in one piece; a ratio of sequences (`GrpoLoss.ratio`) is that of a run. None without trained tokens.
    """
    return turn_samples(trajectory.turns, advantage, weight, temperature=episode_temperature(trajectory))


def turn_samples(turns: Sequence[Turn], advantage: float, weight: float, *, temperature: float) -> list[TrainingSample]:
    """`trajectory_samples` of these turns."""
    total = sum(len(turn.generation.token_ids) for turn in turns)
    samples = []
    for past, run in prompt_runs(turns):
        trained = sum(len(turn.generation.token_ids) for turn in run)
        if trained:
            spans = [Span(past)]
            for turn in run:
                spans += [Span(turn.new_ids), sampled(turn.generation)]
            samples.append(join_spans(spans, advantage, weight * (trained / total), temperature=temperature))
    return samples


def generation_sample(generation: Generation, advantage: float, weight: float) -> TrainingSample:
    """A single generation after its prompt."""
    spans = [Span(generation.prompt_ids), sampled(generation)]
    return join_spans(spans, advantage, weight, temperature=generation.temperature)


def sampled(generation: Generation) -> Span:
    """The trained span of a generation, its stop token included."""
    assert len(generation.token_ids) == len(generation.logprobs)
    return Span(generation.token_ids, generation.logprobs, generation.allowed)


def join_spans(spans: Iterable[Span], advantage: float, weight: float, *, temperature: float) -> TrainingSample:
    """Concatenate spans; mask, log-probs and what was allowed follow from them."""
    token_ids: list[int] = []
    mask: list[bool] = []
    logprobs: list[float] = []
    allowed: list[TokenIds] = []
    for span in spans:
        token_ids.extend(span.token_ids)
        mask.extend([span.logprobs is not None] * len(span.token_ids))
        logprobs.extend(span.logprobs if span.logprobs is not None else [0.0] * len(span.token_ids))
        allowed.extend(span.allowed or [()] * len(span.token_ids))
    assert not mask or not mask[0], "a sequence starts with a prompt: nothing predicts its first token"
    kept = tuple(allowed) if any(allowed) else ()
    return TrainingSample(tuple(token_ids), tuple(mask), tuple(logprobs), advantage, weight, temperature, kept)


def episode_temperature(trajectory: Trajectory) -> float:
    """The temperature of an episode's samples, which is one; 1 for an episode without any turn."""
    temperatures = {turn.generation.temperature for turn in trajectory.turns}
    assert len(temperatures) <= 1, f"an episode is sampled at one temperature, {trajectory.id} has {sorted(temperatures)}"
    return temperatures.pop() if temperatures else 1.0
