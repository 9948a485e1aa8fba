"""Strands: the live entries that belong together, which is where a merge looks for what to consolidate.

A strand is all live entries of one (scope, key), if there are two or more; the entries that are alone under their key form one strand
per scope.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from complementary_rl.experience.bank import Bank

Ints = NDArray[np.int64]

StrandId = tuple[str, int | None]
"""(scope, number of the key), or (scope, None) for the entries that are alone under their key."""


@dataclass(frozen=True, slots=True)
class Members:
    """The entries of a strand, `ids` [n], in ascending order of their `places` [n]: an entry's place is its own id, or in a strand of
    single entries the number of its key."""

    places: Ints
    ids: Ints


Strands = dict[StrandId, Members]
"""In the order of `strand_order`."""


def read_strands(bank: Bank) -> Strands:
    """One pass over the bank, which is locked for a moment at a time. A bank that is written meanwhile may be read half before and
    half after: whoever uses a member looks whether it is live."""
    # Columns rather than objects: ten thousand new ones would set off the garbage collector, which stops every thread for 0.1 s.
    ids, keys, scopes = [], [], []
    codes: dict[str, int] = {}
    for entry_id, scope, key in bank.filed():
        ids.append(entry_id)
        keys.append(key)
        scopes.append(codes.setdefault(scope, len(codes)))
    strands: Strands = {}
    by_code, by_key, by_id = (np.array(column, dtype=np.int64) for column in (scopes, keys, ids))
    for scope in sorted(codes):
        inside = by_code == codes[scope]
        strands |= _strands_of(scope, by_key[inside], by_id[inside])
    return strands


def strand_order(strand: StrandId) -> tuple[str, bool, int]:
    """Sorts strands: scope by scope, the oldest key first, single entries last."""
    scope, key = strand
    return scope, key is None, key or 0


def _strands_of(scope: str, keys: Ints, ids: Ints) -> Strands:
    order = np.lexsort((ids, keys))
    keys, ids = keys[order], ids[order]
    numbers, starts, sizes = np.unique(keys, return_index=True, return_counts=True)
    crowded = sizes > 1
    columns = (numbers[crowded].tolist(), starts[crowded].tolist(), sizes[crowded].tolist())
    strands: Strands = {}
    for key, start, size in zip(*columns, strict=True):
        shelf = ids[start : start + size]
        strands[scope, key] = Members(shelf, shelf)
    alone = starts[~crowded]
    if len(alone) > 1:
        strands[scope, None] = Members(keys[alone], ids[alone])
    return strands
