"""How many episodes each part of a suite may lose to its environments, and what happens to a part that loses more.

It sits out, and the others are dealt its groups; then it is tried again, with its count begun anew. Each time it sits out twice as long.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from complementary_rl.errors import InfrastructureError
from complementary_rl.rollout.runner import Fault

FIRST_REST = 8
"""Steps a part sits out the first time."""


@dataclass(slots=True)
class _Standing:
    """Of one part. `faults` are all that it had; `spent` those since it last came back; it plays again from step `back` on."""

    faults: int = 0
    spent: int = 0
    rests: int = 0
    back: int = 0


class FaultBudget:
    """`limit` faults for each of `parts`, by name."""

    def __init__(self, parts: Sequence[str], limit: int) -> None:
        self._limit = limit
        self._standings = {part: _Standing() for part in parts}

    def plays(self, part: str, step: int) -> bool:
        """Whether a part is dealt groups in a step."""
        return self._standings[part].back <= step

    def faults(self, part: str) -> int:
        """Episodes a part has lost so far."""
        return self._standings[part].faults

    def count(self, part: str, faults: Sequence[Fault], step: int) -> str | None:
        """Count the faults of a part in a step; tells when the part has to sit out. Raises InfrastructureError when no other plays on."""
        standing = self._standings[part]
        standing.faults += len(faults)
        standing.spent += len(faults)
        if not faults or standing.spent <= self._limit:
            return None
        last = faults[-1]
        message = (
            f"{standing.spent} episodes were lost to environment faults, more than env.fault_budget = {self._limit}; "
            f"the last: {last.kind}: {last.message}. Check the suite with `crl envs check`"
        )
        if len(self._standings) > 1:
            message = f"part {part!r}: {message}"
        standing.back = step + 1 + FIRST_REST * 2**standing.rests
        standing.rests, standing.spent = standing.rests + 1, 0
        if not any(self.plays(other, step + 1) for other in self._standings):
            raise InfrastructureError(message)
        return f"{message}; it sits out until step {standing.back} and the others take its groups"

    def state_dict(self) -> dict[str, Any]:
        return {part: asdict(standing) for part, standing in self._standings.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._standings |= {part: _Standing(**standing) for part, standing in state.items()}
