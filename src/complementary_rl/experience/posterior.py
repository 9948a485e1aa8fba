"""What is believed of "showing this entry leads to success", wherever entries are ranked by value: one Beta posterior."""

from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from complementary_rl.config import RetrievalConfig

Number = TypeVar("Number", float, NDArray[np.float64])


@dataclass(frozen=True, slots=True)
class Posterior:
    """Beta(α0 + s + w·v, β0 + f) after s successes and f failures of rollouts that an entry guided, and v votes for it.

    A vote is another generation that wrote the same text. Whoever is right is repeated, whoever errs does so in many ways: a text that
    several episodes taught is believed before it is tried, and a few failures from one start do not bury it.
    """

    prior_success: float
    prior_failure: float
    vote_weight: float

    @classmethod
    def of(cls, config: RetrievalConfig) -> Self:
        return cls(config.prior_success, config.prior_failure, config.vote_weight)

    def wins(self, successes: Number, votes: Number) -> Number:
        """α0 + s + w·v."""
        return successes + self.prior_success + self.vote_weight * votes

    def losses(self, failures: Number) -> Number:
        """β0 + f."""
        return failures + self.prior_failure

    def mean(self, successes: Number, failures: Number, votes: Number) -> Number:
        """(α0 + s + w·v) / (α0 + s + w·v + β0 + f)."""
        wins = self.wins(successes, votes)
        return wins / (wins + self.losses(failures))
