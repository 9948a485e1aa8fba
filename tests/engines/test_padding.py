"""Which rows are computed together."""

import numpy as np
import pytest

from complementary_rl.engines.local.microbatch import TRAINING_PADDING
from complementary_rl.engines.local.padding import Padding, padded_groups

HALF = Padding(share=0.5, least=512)


def test_one_group_in_row_order_when_everything_fits() -> None:
    assert padded_groups([3, 9, 5], 27, HALF) == [[0, 1, 2]]


def test_groups_respect_the_budget_and_keep_every_row() -> None:
    lengths = [100, 7, 300, 120, 90, 5000, 6]
    groups = padded_groups(lengths, 600, HALF)
    assert sorted(row for group in groups for row in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) == 1 or len(group) * max(lengths[row] for row in group) <= 600


def test_short_rows_are_not_padded_to_a_long_one() -> None:
    groups = padded_groups([4000, *[10] * 63], 1_000_000, HALF)
    assert groups == [[0], list(range(1, 64))]


def test_no_rows_are_no_groups() -> None:
    assert padded_groups([], 100, HALF) == []


@pytest.mark.parametrize("spread", [0.3, 0.8])
def test_little_of_a_training_batch_is_padding(spread: float) -> None:
    """Episodes of 20 to 4,000 tokens, some ten times as long as others."""
    lengths = np.random.default_rng(0).lognormal(5.5, spread, 256).astype(int).clip(20, 4000).tolist()
    groups = padded_groups(lengths, 16_384, TRAINING_PADDING)
    computed = sum(len(group) * max(lengths[row] for row in group) for group in groups)
    assert 1 - sum(lengths) / computed < 0.12
    assert len(groups) <= 40
