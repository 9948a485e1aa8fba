"""Strands: the live entries that belong together, which is where a merge looks for what to consolidate.

A strand is all live entries of one (scope, key), if there are two or more; the entries that are alone under their key form one strand
per scope.
"""

from collections import defaultdict
from dataclasses import dataclass

from complementary_rl.experience.bank import Bank

StrandId = tuple[str, int | None]
"""(scope, number of the key), or (scope, None) for the entries that are alone under their key."""


@dataclass(frozen=True, slots=True)
class Member:
    """An entry of a strand. `place` orders it: its own id, or in a strand of single entries the number of its key."""

    place: int
    id: int


Strands = dict[StrandId, list[Member]]
"""Strands in the order of `strand_order`, their members by place."""


def read_strands(bank: Bank) -> Strands:
    """One pass over the bank, which is locked for a moment at a time. A bank that is written meanwhile may be read half before and
    half after: whoever uses a member looks whether it is live."""
    shelves: dict[tuple[str, int], list[int]] = defaultdict(list)
    for entry_id, scope, key in bank.filed():
        shelves[scope, key].append(entry_id)
    crowded: Strands = {}
    single: dict[StrandId, list[Member]] = defaultdict(list)
    for (scope, key), ids in sorted(shelves.items()):
        if len(ids) > 1:
            crowded[scope, key] = [Member(entry_id, entry_id) for entry_id in ids]
        else:
            single[scope, None].append(Member(key, ids[0]))
    strands = crowded | {strand: members for strand, members in single.items() if len(members) > 1}
    return {strand: strands[strand] for strand in sorted(strands, key=strand_order)}


def strand_order(strand: StrandId) -> tuple[str, bool, int]:
    """Sorts strands: scope by scope, the oldest key first, single entries last."""
    scope, key = strand
    return scope, key is None, key or 0
