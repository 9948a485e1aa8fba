"""The one way in which success rates of training are averaged."""

MEMORY = 256
"""Rollouts over which a success rate is averaged, with weights that fade exponentially."""


def faded(won: float, played: float, success: bool) -> tuple[float, float]:
    """Weighted successes and rollouts after one more; their quotient is the rate."""
    keep = 1.0 - 1.0 / MEMORY
    return won * keep + success, played * keep + 1.0
