"""What is filed where, and what it is alike to: read in portions, so that the bank's lock is held for a moment at a time."""

from collections.abc import Iterator, Sequence

import numpy as np

from complementary_rl.experience.embedding import Embedder, Vectors
from complementary_rl.experience.state import BankState

_PORTION = 256
"""Rows read under one hold of the lock: well under a millisecond."""


def filed(state: BankState) -> Iterator[tuple[int, str, int]]:
    """See `Bank.filed`."""
    last = 0
    while True:
        with state.lock:
            rows = state.store.rows(
                "SELECT id, scope, key_id FROM entries WHERE retired_step IS NULL AND id > ? ORDER BY id LIMIT ?", (last, _PORTION)
            )
        yield from rows
        if len(rows) < _PORTION:
            return
        last = rows[-1][0]


def vectors(state: BankState, embedder: Embedder, ids: Sequence[int]) -> tuple[Vectors, Vectors]:
    """See `Bank.vectors`."""
    marks = ", ".join("?" * len(ids))
    with state.lock:
        rows = state.store.rows(
            f"SELECT e.id, e.text, e.text_vector, k.vector FROM entries e JOIN keys k ON k.id = e.key_id WHERE e.id IN ({marks})",
            ids,
        )
    unknown = list(dict.fromkeys(text for _, text, blob, _ in rows if blob is None))
    embedded = dict(zip(unknown, embedder.embed(unknown), strict=True)) if unknown else {}
    texts = {entry_id: embedded[text] if blob is None else np.frombuffer(blob, dtype="<f4") for entry_id, text, blob, _ in rows}
    keys = {entry_id: np.frombuffer(blob, dtype="<f4") for entry_id, _, _, blob in rows}
    return np.stack([texts[entry_id] for entry_id in ids]), np.stack([keys[entry_id] for entry_id in ids])
