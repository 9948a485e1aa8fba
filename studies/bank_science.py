"""What became of the entries of a run's bank: how long they live, whether they stay useful, how much repeats, how it grows."""

import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class BankLife:
    """Lifetimes in actor steps.

    `lives` are (steps lived, retired by now) of every entry; `shown` are (age when shown, won) of every finished rollout that was shown
    one; `operations` counts the log by kind; `growth` is the number of live entries after each step that changed it.
    """

    lives: tuple[tuple[int, bool], ...]
    shown: tuple[tuple[int, bool], ...]
    operations: dict[str, int]
    growth: tuple[tuple[int, int], ...]


def read_bank(path: Path, last_step: int) -> BankLife:
    """The life of a `bank.sqlite`, opened for reading alone, up to `last_step` (how long entries that still live have lived)."""
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
        entries = database.execute("SELECT created_step, retired_step FROM entries").fetchall()
        shown = database.execute(
            "SELECT o.step - e.created_step, o.success FROM outcomes o JOIN entries e ON e.id = o.entry_id WHERE o.success IS NOT NULL"
        ).fetchall()
        operations = dict(database.execute("SELECT kind, count(*) FROM operations GROUP BY kind").fetchall())
    lives = tuple(((last_step if end is None else end) - start, end is not None) for start, end in entries)
    change = Counter(start for start, _ in entries)
    change.subtract(end for _, end in entries if end is not None)
    size, growth = 0, []
    for step in sorted(change):
        size += change[step]
        growth.append((step, size))
    return BankLife(lives, tuple((age, bool(won)) for age, won in shown), operations, tuple(growth))


def half_life(lives: Sequence[tuple[int, bool]]) -> float | None:
    """Steps after which half of the entries are retired (Kaplan and Meier's estimate, since many still live); None if it never falls so
    far."""
    surviving = 1.0
    for age in sorted({age for age, retired in lives if retired}):
        at_risk = sum(lived >= age for lived, _ in lives)
        surviving *= 1 - sum(retired and lived == age for lived, retired in lives) / at_risk
        if surviving <= 0.5:
            return float(age)
    return None


def usefulness_by_age(shown: Sequence[tuple[int, bool]], edges: Sequence[int]) -> list[float | None]:
    """Success of rollouts by the age of what they were shown: below each edge, from the one before; None where there were none."""
    lows = [0, *edges[:-1]]
    won = [[success for age, success in shown if low <= age < high] for low, high in zip(lows, edges, strict=True)]
    return [sum(some) / len(some) if some else None for some in won]


def duplicate_share(operations: dict[str, int]) -> float | None:
    """Votes among all texts that were taken as new ones or as votes; None where there were none."""
    votes = operations.get("vote", 0)
    taken = votes + operations.get("add", 0)
    return votes / taken if taken else None
