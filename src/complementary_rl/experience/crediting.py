"""From finished rollouts to the extractor's buffer: whose words earned what."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal

from complementary_rl.config import CreditConfig
from complementary_rl.experience.bank import Added, Bank
from complementary_rl.experience.buffer import ExtractorBuffer
from complementary_rl.experience.credit import Credit, group_credits, mean_credits
from complementary_rl.experience.tally import Tally
from complementary_rl.types import Generation, Trajectory

MAX_WRITERS = 8
"""How many generations that wrote an entry's very text are credited with it, the newest ones. Crediting the first writer alone
starves the extractor: what is right has soon been written before, and only wrong texts would still be new."""


Output = Literal["unparsable", "returned", "refused"]
"""What an answer can be that wrote nothing; "refused": the bank took none of its texts."""


def all_refused(taken: Sequence[Added]) -> bool:
    """Whether an answer had texts, and the bank took none of them."""
    return bool(taken) and all(added.outcome == "refused" for added in taken)


def by_group(trajectories: Sequence[Trajectory]) -> list[list[Trajectory]]:
    """Trajectories by step and group, in order of first appearance."""
    groups: dict[tuple[int, int], list[Trajectory]] = defaultdict(list)
    for trajectory in trajectories:
        groups[trajectory.step, trajectory.group].append(trajectory)
    return list(groups.values())


class Crediting:
    """Fills `buffer` and logs every credit in the bank."""

    def __init__(self, bank: Bank, buffer: ExtractorBuffer, config: CreditConfig, tally: Tally) -> None:
        self._bank = bank
        self._buffer = buffer
        self._config = config
        self._tally = tally

    def credit_rollouts(self, trajectories: Sequence[Trajectory], step: int, gate_scores: Mapping[str, float] | None) -> None:
        """Credit, by `credit.rule`, the generations that wrote what guided rollouts were shown or answered; r̄(m) is one number per
        generation, the mean over all rollouts of the call."""
        earned: list[tuple[str, Credit]] = []
        for group in by_group(trajectories):
            found = group_credits(group, self._config.rule, gate_scores)
            for entry_id, credit in found.entries.items():
                earned += [(writer, credit) for writer in self._bank.writers(entry_id)[-MAX_WRITERS:]]
            earned += found.answers.items()
        credits = mean_credits(earned)
        generations = self._bank.generations(list(credits))
        self._bank.record_credits(step, [(name, credit.value, credit.rollouts) for name, credit in credits.items()])
        for generation in generations:
            self._give(generation, credits[generation.id])

    def credit_output(self, generation: Generation, output: Output, step: int) -> None:
        """Give an answer that wrote nothing the credit that the configuration has for it, if any."""
        value: float | None = getattr(self._config, output)
        if value is not None:
            self._bank.record_credits(step, [(generation.id, value, 1)])
            self._give(generation, Credit(value))

    def _give(self, generation: Generation, credit: Credit) -> None:
        self._buffer.add(generation.id, generation.version, credit)
        self._tally.count("credits")
        self._tally.count("negative_credits", credit.value < 0)
