"""What is filed where, and what it is alike to: read in portions, so that the bank's lock is held for a moment at a time."""

from collections.abc import Iterator, Sequence

import numpy as np

from complementary_rl.experience.embedding import Embedder, Vectors, text_vectors, vector_from_blob
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
    known = [entry_id for entry_id, *_ in rows]
    texts = dict(zip(known, text_vectors(embedder, [(text, blob) for _, text, blob, _ in rows]), strict=True))
    keys = {entry_id: vector_from_blob(blob) for entry_id, _, _, blob in rows}
    return np.stack([texts[entry_id] for entry_id in ids]), np.stack([keys[entry_id] for entry_id in ids])
