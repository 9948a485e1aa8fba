"""Estimates over seeds. With five runs a bootstrap is far too sure of itself; Student's t is not. Both are shown, and which is which."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from complementary_rl.report.intervals import Estimate
from complementary_rl.seeds import rng

RESAMPLES = 2000
TAILS = (2.5, 97.5)


def seed_interval(values: Sequence[float]) -> Estimate:
    """Mean over independent runs with its 95 % t interval; no interval (equal to the mean) for a single run, empty for none."""
    if not values:
        return Estimate()
    data = np.asarray(values, dtype=np.float64)
    mean, n = float(data.mean()), len(data)
    half = float(student.ppf(0.975, n - 1) * data.std(ddof=1) / n**0.5) if n > 1 else 0.0
    return Estimate(mean=mean, lo=mean - half, hi=mean + half, n=n)


def interquartile_interval(values: Sequence[float]) -> Estimate:
    """Interquartile mean over runs with its 95 % percentile bootstrap interval (Agarwal et al., arXiv 2108.13264, for one task)."""
    if not values:
        return Estimate()
    data = np.asarray(values, dtype=np.float64)
    draws = data[rng(0, "bootstrap", "interquartile").integers(data.size, size=(RESAMPLES, data.size))]
    low, high = np.percentile(interquartile_mean(draws), TAILS)
    return Estimate(mean=float(interquartile_mean(data)), lo=float(low), hi=float(high), n=data.size)


def interquartile_mean(data: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of the middle half along the last axis: a quarter of the values, rounded down, is left out at either end."""
    cut = data.shape[-1] // 4
    middle = np.sort(data, axis=-1)[..., cut : data.shape[-1] - cut]
    return np.asarray(middle.mean(axis=-1))


def paired(first: Sequence[float | None], second: Sequence[float | None]) -> list[float]:
    """`first` − `second`, seed by seed, where both have a value."""
    return [a - b for a, b in zip(first, second, strict=True) if a is not None and b is not None]


def present(values: Sequence[float | None]) -> list[float]:
    """Those that are values."""
    return [value for value in values if value is not None]
