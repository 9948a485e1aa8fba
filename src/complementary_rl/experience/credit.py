"""Credit r(m): how the outcomes of rollouts become the credit of the generations that wrote what they were shown.

    trajectories of a group → credit per entry and per answer → mean per generation (r̄(m)) → ExtractorBuffer

Success decides, never the size of the reward: partial rewards are the environment's shaping and say nothing of whether m was right.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from complementary_rl.types import Condition, Trajectory

CreditRule = Literal["outcome", "relative", "contrast"]
Id = TypeVar("Id", int, str)


@dataclass(frozen=True, slots=True)
class Credit:
    """A mean credit and the number of rollouts it was averaged over."""

    value: float
    rollouts: int = 1


@dataclass(frozen=True, slots=True)
class GroupCredits:
    """What one group credits: `entries` by bank entry id, `answers` by the generation id of a search_and_ask answer."""

    entries: dict[int, Credit] = field(default_factory=dict)
    answers: dict[str, Credit] = field(default_factory=dict)


def group_credits(group: Sequence[Trajectory], rule: CreditRule, gate_scores: Mapping[str, float] | None = None) -> GroupCredits:
    """Credits of everything shown in one group, in order of first showing; only guided rollouts count.

    Over the n rollouts that were shown m: "outcome" is the mean of +1 for a success and −1 for a failure; "relative" the
    success rate minus the free half's, and nothing in a group without one; "contrast" the success rate minus that of the
    group's other guided rollouts, and nothing for what all of them were shown. All lie in [−1, 1].

    `gate_scores` (trajectory id → 1 accept, 0.5 refine, 0 reject; Eq 8) are averaged over the same rollouts and *added*: r̃ =
    s_gate + r, in [−1, 2] as in the paper. The verdict never replaces the outcome: a failure that was accepted (0) stays below
    a success that was rejected (1). Trajectories without a score add nothing.
    """
    guided = [trajectory for trajectory in group if trajectory.condition is Condition.GUIDED]
    free = [trajectory for trajectory in group if trajectory.condition is Condition.FREE]
    scores = gate_scores or {}

    def credit(users: Sequence[Trajectory]) -> Credit | None:
        value = _value(users, guided, free, rule)
        if value is None:
            return None
        gate = sum(scores.get(trajectory.id, 0.0) for trajectory in users) / len(users)
        return Credit(value + gate, len(users))

    entries = {entry: credit(users) for entry, users in _users(guided, lambda t: t.entry_ids).items()}
    answers = {answer: credit(users) for answer, users in _users(guided, lambda t: t.answer_ids).items()}
    return GroupCredits(
        {entry: found for entry, found in entries.items() if found is not None},
        {answer: found for answer, found in answers.items() if found is not None},
    )


def mean_credits(credits: Iterable[tuple[str, Credit]]) -> dict[str, Credit]:
    """r̄(m): one credit per generation id, averaged over rollouts, in order of first appearance.

    One generation may have written several entries, and an entry may be shown in several groups of a step.
    """
    means: dict[str, Credit] = {}
    for generation_id, credit in credits:
        known = means.get(generation_id)
        means[generation_id] = credit if known is None else merge_credits(known, credit)
    return means


def merge_credits(first: Credit, second: Credit) -> Credit:
    """The mean of two credits, weighted by their numbers of rollouts."""
    rollouts = first.rollouts + second.rollouts
    return Credit((first.value * first.rollouts + second.value * second.rollouts) / rollouts, rollouts)


def success_rate(trajectories: Collection[Trajectory]) -> float:
    """Share of successes; the collection must not be empty."""
    return sum(trajectory.success for trajectory in trajectories) / len(trajectories)


def _value(users: Sequence[Trajectory], guided: Sequence[Trajectory], free: Sequence[Trajectory], rule: CreditRule) -> float | None:
    if rule == "outcome":
        return 2.0 * success_rate(users) - 1.0
    if rule == "relative":
        compared = list(free)
    else:
        shown = {trajectory.id for trajectory in users}
        compared = [trajectory for trajectory in guided if trajectory.id not in shown]
    return success_rate(users) - success_rate(compared) if compared else None


def _users(guided: Sequence[Trajectory], ids: Callable[[Trajectory], tuple[Id, ...]]) -> dict[Id, list[Trajectory]]:
    users: dict[Id, list[Trajectory]] = defaultdict(list)
    for trajectory in guided:
        for shown in dict.fromkeys(ids(trajectory)):
            users[shown].append(trajectory)
    return dict(users)
