"""Undoing one operation of the log: what it retired comes back, what it made retires.

An operation can be undone when it is the last word on every entry it made or retired. Whatever was done to them since, and was not
undone itself, has to be undone first, newest first; the log then reads like a stack. A revert is an operation of its own and final.
A vote stays: a text was written again, whatever becomes of what it was to replace.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from complementary_rl.errors import BankError
from complementary_rl.experience import replay
from complementary_rl.experience.records import LogRecord
from complementary_rl.experience.state import WRITING_KINDS, BankState

_NAMED = 8
"""Operations that a message names; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Reverted:
    """What a revert did: its own `operation_id`, the operation it undid, and the ids of entries. `evicted` made room."""

    operation_id: int
    undone: LogRecord
    revived: list[int]
    retired: list[int]
    evicted: list[int]


def revert(state: BankState, operation_id: int, step: int) -> Reverted:
    """Undo one operation; to be called in a transaction. Raises BankError, which says what to do instead, where it cannot be."""
    undone = replay.operation(state.store, operation_id)
    made, revived = _made(undone), _retired(undone)
    _check(state, undone)
    _check_texts(state, revived, made)
    step = state.tick(step)
    state.retire(made, step)
    evicted = state.make_room(len(revived), step)
    state.revive(revived)
    reverting = state.log(
        "revert", step, [*made, *revived], reverted=operation_id, asked=undone.kind, revived=revived, retired=made
    )
    state.store.run("INSERT INTO reverts VALUES (?, ?)", (operation_id, reverting))
    return Reverted(reverting, undone, revived, made, evicted)


def _made(record: LogRecord) -> list[int]:
    return [record.payload["entry"]] if record.kind in WRITING_KINDS else []


def _retired(record: LogRecord) -> list[int]:
    return list(record.payload.get("retired", ()))


def _check(state: BankState, undone: LogRecord) -> None:
    name = f"operation {undone.id} ({undone.kind})"
    if undone.reverted_by is not None:
        raise BankError(f"{name} was reverted already, by operation {undone.reverted_by}; see `crl bank log`")
    if undone.kind == "revert":
        raise BankError(f"{name} is a revert itself and final; choose another operation from `crl bank log`")
    if not _made(undone) and not _retired(undone):
        raise BankError(f"{name} neither made nor retired an entry: there is nothing to undo; see `crl bank log`")
    later = _built_on(state, undone)
    if later:
        names = [f"{record.id} ({record.kind})" for record in later[:_NAMED]]
        more = f" and {len(later) - _NAMED} more" if len(later) > _NAMED else ""
        raise BankError(f"{name} has been built on since; revert first, in this order: {', '.join(names)}{more}")


def _built_on(state: BankState, undone: LogRecord) -> list[LogRecord]:
    """What was done since to entries that an operation made or retired, and to what was made of those in turn; newest first."""
    found: dict[int, LogRecord] = {}
    waiting = [undone]
    while waiting:
        record = waiting.pop()
        for later in replay.unreverted_since(state.store, record.id, [*_made(record), *_retired(record)]):
            if later.id not in found and later.kind != "revert" and (_made(later) or _retired(later)):
                found[later.id] = later
                waiting.append(later)
    return [found[operation_id] for operation_id in sorted(found, reverse=True)]


def _check_texts(state: BankState, revived: Sequence[int], leaving: Sequence[int]) -> None:
    """No two live entries of one key and scope may be identical: what was written again meanwhile keeps its predecessor out."""
    for entry_id in revived:
        twin = state.identical_to(entry_id)
        if twin is not None and twin not in leaving:
            maker = replay.maker(state.store, twin)
            raise BankError(
                f"entry {entry_id} cannot come back: entry {twin} is live and says the same; revert operation {maker.id} "
                f"({maker.kind}), which made it, first"
            )
