"""Who trains a model: one process alone, or several that each compute a part of every batch.

`Trainer` is the same in both; what differs is here and, for several, in `engines.ray.sharding`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from complementary_rl.engines.local.microbatch import split_samples
from complementary_rl.engines.protocol import LossOutput, TrainingSample
from complementary_rl.types import Metrics


@dataclass(slots=True)
class Sums:
    """What is added up over micro-batches and ranks: `counts` as they are, `quotients` as numerator and denominator."""

    counts: Metrics = field(default_factory=dict)
    quotients: dict[str, tuple[float, float]] = field(default_factory=dict)

    def add(self, term: str, output: LossOutput, tokens: int) -> None:
        """Take in one micro-batch of a term."""
        self._take(
            {"tokens": float(tokens), f"{term}/loss": output.loss.item()}, {f"{term}/{n}": v for n, v in output.sums.items()}
        )

    def metrics(self) -> Metrics:
        """Counts, and the quotients that have a denominator."""
        return self.counts | {name: n / d for name, (n, d) in self.quotients.items() if d}

    @classmethod
    def of(cls, parts: Sequence["Sums"]) -> "Sums":
        """The sum of `parts`, in their order."""
        total = cls()
        for part in parts:
            total._take(part.counts, part.quotients)
        return total

    def _take(self, counts: Metrics, quotients: dict[str, tuple[float, float]]) -> None:
        for name, value in counts.items():
            self.counts[name] = self.counts.get(name, 0.0) + value
        for name, (numerator, denominator) in quotients.items():
            n, d = self.quotients.get(name, (0.0, 0.0))
            self.quotients[name] = (n + numerator, d + denominator)


class Ranks(Protocol):
    """The processes that train one model. All of them call the same methods in the same order: most are joint."""

    def prepare(self, scorer: Any, layers: Sequence[Any]) -> None:
        """Leave this rank its part of the parameters of `scorer`, an nn.Module, in place; `layers` are the parts gathered one at a time.
        To be called before anything holds on to a parameter."""
        ...

    def share(self, samples: Sequence[TrainingSample], max_tokens: int) -> list[list[int]]:
        """This rank's micro-batches, as indices of samples; of the same number on every rank. An empty one has this rank take part in the
        others' passes with nothing of its own."""
        ...

    def total(self, sums: Sums) -> Sums:
        """The sum over ranks, the same on each."""
        ...

    def whole(self, tensor: Tensor) -> Tensor:
        """A parameter, gradient or norm of which each rank has a part, put together."""
        ...


class Alone:
    """One process with all of the model. Implements `Ranks`."""

    def prepare(self, scorer: Any, layers: Sequence[Any]) -> None:
        """See `Ranks.prepare`."""

    def share(self, samples: Sequence[TrainingSample], max_tokens: int) -> list[list[int]]:
        """See `Ranks.share`."""
        return split_samples(samples, max_tokens)

    def total(self, sums: Sums) -> Sums:
        """See `Ranks.total`."""
        return sums

    def whole(self, tensor: Tensor) -> Tensor:
        """See `Ranks.whole`."""
        return tensor
