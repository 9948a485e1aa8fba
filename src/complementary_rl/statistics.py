"""Estimates with intervals."""

from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel

from complementary_rl.seeds import rng

RESAMPLES = 2000


class Estimate(BaseModel):
    """A mean with its 95 % percentile-bootstrap interval over `n` values; all NaN when there are none."""

    mean: float
    lo: float
    hi: float
    n: int


def bootstrap_interval(values: Sequence[float], seed: int) -> Estimate:
    """Bootstrap the mean of independent values; equal values and seeds give equal intervals."""
    if not values:
        return Estimate(mean=float("nan"), lo=float("nan"), hi=float("nan"), n=0)
    array = np.asarray(values, dtype=np.float64)
    draws = rng(seed, "bootstrap", len(array)).integers(0, len(array), size=(RESAMPLES, len(array)))
    low, high = np.percentile(array[draws].mean(axis=1), [2.5, 97.5])
    return Estimate(mean=float(array.mean()), lo=float(low), hi=float(high), n=len(array))


def paired_difference(first: Sequence[float], second: Sequence[float], seed: int) -> Estimate:
    """Bootstrap the mean of ``first[i] − second[i]``; both lists are of equal length."""
    return bootstrap_interval([a - b for a, b in zip(first, second, strict=True)], seed)
