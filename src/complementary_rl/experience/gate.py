"""Eq 8, the gate: before acting, the actor accepts, refines or rejects what it was offered. Off by default, as in the paper.

The verdict's score s_gate is *added* to the credit and never stands in for the outcome. A rejected entry is not shown: the rollout
is free and labelled so.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from complementary_rl.types import Trajectory

ACCEPT, REFINE, REJECT = 1.0, 0.5, 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """`score` is s_gate; `text` the refined entry, None unless refined."""

    score: float
    text: str | None = None


def parse_verdict(text: str) -> Verdict | None:
    """``accept``, ``refine: NEW TEXT`` or ``reject`` at the start of the actor's answer; None for anything else."""
    answer = text.strip()
    word, _, rest = answer.partition(":")
    name = word.strip().lower()
    if name == "refine" and rest.strip():
        return Verdict(REFINE, rest.strip())
    return {"accept": Verdict(ACCEPT), "reject": Verdict(REJECT)}.get(name)


class SuccessRates:
    """The actor's running success rate per scope, over all its training rollouts."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}

    def record(self, trajectories: Iterable[Trajectory]) -> None:
        for trajectory in trajectories:
            counts = self._counts.setdefault(trajectory.task.scope, [0, 0])
            counts[0] += trajectory.success
            counts[1] += 1

    def rate(self, scope: str) -> float:
        """Successes per rollout in a scope; 0 before the first."""
        won, played = self._counts.get(scope, (0, 0))
        return won / max(1, played)

    def state_dict(self) -> dict[str, Any]:
        return {"counts": self._counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._counts = {scope: list(counts) for scope, counts in state["counts"].items()}
