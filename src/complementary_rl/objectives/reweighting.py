"""Count-aware reweighting of the extractor's advantages (Eq 7 of arXiv 2603.17621).

An entry that is retrieved often earns credit often. Without Eq 7 its generation is trained again each time, and the extractor
collapses to the words of a few popular entries whatever it reads.
"""


def trained_recently(last_trained_update: int | None, update: int, gap: int) -> bool:
    """Whether a generation last trained at `last_trained_update` (None: never) was trained within the `gap` (δ) updates before
    `update`."""
    return last_trained_update is not None and update - last_trained_update <= gap


def retrain_weight(times_trained: int, last_trained_update: int | None, *, update: int, gap: int, alpha: float) -> float:
    """w(m) of Eq 7 for the extractor's update number `update`: 0 if trained within the last `gap` (δ) updates, else
    (1 + `times_trained`)^(−`alpha`)."""
    if trained_recently(last_trained_update, update, gap):
        return 0.0
    return float((1 + times_trained) ** -alpha)
