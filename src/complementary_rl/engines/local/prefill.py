"""What is read once for several rows. Pure functions of ids."""

from collections.abc import Sequence

from complementary_rl.types import TokenIds

_SHARE_AT_LEAST = 0.5
"""Share of its prompt a row must have in common with another to copy it instead of reading it."""
_WORTH_A_PASS = 64
"""Tokens that must be saved in all, since the copiers are read one pass later."""


def shared_prefixes(prompts: Sequence[TokenIds]) -> dict[int, tuple[int, int]]:
    """Rows that can copy the beginning of another row: row → (donor row, tokens). Donors are never copiers.

    Prompts of one group (same task) differ at most in their last lines, and those of one task set share the instructions. In sorted
    order such prompts are neighbours, so one pass finds them. A copier keeps at least its last token to read. Empty when too
    little is saved.
    """
    shares: dict[int, tuple[int, int]] = {}
    donor = -1
    for row in sorted(range(len(prompts)), key=lambda row: (prompts[row], row)):
        common = 0 if donor < 0 else min(common_prefix(prompts[donor], prompts[row]), len(prompts[row]) - 1)
        if common >= _SHARE_AT_LEAST * len(prompts[row]):
            shares[row] = (donor, common)
        else:
            donor = row
    return shares if sum(tokens for _, tokens in shares.values()) >= _WORTH_A_PASS else {}


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return min(len(left), len(right))
