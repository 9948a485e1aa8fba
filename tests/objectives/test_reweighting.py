"""Eq 7 by hand."""

import pytest

from complementary_rl.objectives.reweighting import retrain_weight


@pytest.mark.parametrize(
    ("times", "last", "update", "gap", "alpha", "expected"),
    [
        (0, None, 0, 1, 0.5, 1.0),
        (1, 9, 10, 1, 0.5, 0.0),
        (1, 8, 10, 1, 0.5, 2**-0.5),
        (3, 5, 10, 1, 0.5, 0.5),
        (3, 7, 10, 3, 0.5, 0.0),
        (3, 6, 10, 3, 1.0, 0.25),
        (1, 9, 10, 0, 0.5, 2**-0.5),
        (7, 1, 10, 1, 0.0, 1.0),
    ],
)
def test_weight(times, last, update, gap, alpha, expected):
    assert retrain_weight(times, last, update=update, gap=gap, alpha=alpha) == pytest.approx(expected)
