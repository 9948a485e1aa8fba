"""Means over seeds. With five runs a bootstrap is far too sure of itself; Student's t is not."""

from collections.abc import Sequence

import numpy as np
from scipy.stats import t as student

from complementary_rl.report.intervals import Estimate


def seed_interval(values: Sequence[float]) -> Estimate:
    """Mean over independent runs with its 95 % t interval; no interval (equal to the mean) for a single run, empty for none."""
    if not values:
        return Estimate()
    data = np.asarray(values, dtype=np.float64)
    mean, n = float(data.mean()), len(data)
    half = float(student.ppf(0.975, n - 1) * data.std(ddof=1) / n**0.5) if n > 1 else 0.0
    return Estimate(mean=mean, lo=mean - half, hi=mean + half, n=n)
