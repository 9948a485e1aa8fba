"""Means with 95 % bootstrap intervals."""

from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict

from complementary_rl.seeds import rng

RESAMPLES = 2000
_BLOCK_ELEMENTS = 1_000_000
"""Resampled values held at once: bounds memory for long lists."""
_TAILS = (2.5, 97.5)


class Estimate(BaseModel):
    """The mean of `n` values with its 95% interval [lo, hi]; all three are None when n is 0."""

    model_config = ConfigDict(frozen=True)

    mean: float | None = None
    lo: float | None = None
    hi: float | None = None
    n: int = 0

    def text(self, spec: str = ".2f") -> str:
        """Such as ``0.71 [0.65, 0.77]``; a dash when there are no values."""
        if self.mean is None or self.lo is None or self.hi is None:
            return "–"
        return f"{self.mean:{spec}} [{self.lo:{spec}}, {self.hi:{spec}}]"


def bootstrap_interval(values: Sequence[float], seed: int) -> Estimate:
    """The mean of independent values (0/1 for a success rate) and its 95 % percentile bootstrap interval.

    The same values and seed give the same interval. Where all values are equal the interval is that one point: it tells the spread of
    what was seen, not what could still happen.
    """
    data = np.asarray(values, dtype=np.float64)
    assert np.isfinite(data).all(), "rewards and counts are finite where they are collected"
    if data.size == 0:
        return Estimate()
    generator = rng(seed, "bootstrap")
    rows = max(1, _BLOCK_ELEMENTS // data.size)
    means = [
        data[generator.integers(data.size, size=(min(rows, RESAMPLES - done), data.size))].mean(axis=1)
        for done in range(0, RESAMPLES, rows)
    ]
    low, high = np.percentile(np.concatenate(means), _TAILS)
    return Estimate(mean=float(data.mean()), lo=float(low), hi=float(high), n=int(data.size))


def ratio_interval(numerators: Sequence[float], denominators: Sequence[float], seed: int) -> Estimate:
    """Σ numerators / Σ denominators over independent pairs, and its 95 % percentile bootstrap interval over pairs.

    `n` is the number of pairs; empty when the denominators sum to 0. Resamples whose denominators do are left out.
    """
    pairs = np.stack([np.asarray(numerators, dtype=np.float64), np.asarray(denominators, dtype=np.float64)])
    if not pairs[1].sum():
        return Estimate()
    n = pairs.shape[1]
    # How often each pair is drawn: a resample's sums are one product with its counts.
    counts = rng(seed, "bootstrap", "ratio").multinomial(n, np.full(n, 1.0 / n), size=RESAMPLES)
    sums = counts @ pairs.T
    sums = sums[sums[:, 1] > 0]
    low, high = np.percentile(sums[:, 0] / sums[:, 1], _TAILS)
    return Estimate(mean=float(pairs[0].sum() / pairs[1].sum()), lo=float(low), hi=float(high), n=n)


def rate_difference(first: Estimate, second: Estimate, seed: int) -> Estimate:
    """`first` − `second` for two success rates, bootstrapped as independent samples (a resample of 0/1 values is a binomial draw).

    `n` is the smaller of the two; empty when either is.
    """
    if first.mean is None or second.mean is None:
        return Estimate()
    generator = rng(seed, "bootstrap", "difference")
    draws = [generator.binomial(n, mean, size=RESAMPLES) / n for n, mean in ((first.n, first.mean), (second.n, second.mean))]
    low, high = np.percentile(draws[0] - draws[1], _TAILS)
    return Estimate(mean=first.mean - second.mean, lo=float(low), hi=float(high), n=min(first.n, second.n))
