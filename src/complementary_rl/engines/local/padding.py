"""Rows of unequal length → groups that are computed together, each padded to its longest."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Padding:
    """How much of it a group may have: `share` of its real tokens, or `least` tokens, which cost less than one more pass."""

    share: float
    least: int


def padded_groups(lengths: Sequence[int], budget: int, allowed: Padding) -> list[list[int]]:
    """Rows to compute together: at most `budget` tokens with padding (a longer row stands alone), and little of it padding.

    One group, in row order, when everything fits; otherwise longest rows first.
    """
    if lengths and _fits(len(lengths), max(lengths), sum(lengths), budget, allowed):
        return [list(range(len(lengths)))]
    groups: list[list[int]] = []
    longest = total = 0
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if groups and _fits(len(groups[-1]) + 1, longest, total + lengths[row], budget, allowed):
            groups[-1].append(row)
            total += lengths[row]
        else:
            groups.append([row])
            longest = total = lengths[row]
    return groups


def _fits(rows: int, longest: int, tokens: int, budget: int, allowed: Padding) -> bool:
    padded = rows * longest
    return rows == 1 or (padded <= budget and padded - tokens <= max(tokens * allowed.share, allowed.least))
