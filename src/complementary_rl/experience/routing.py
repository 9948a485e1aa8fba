"""Where entries are no longer offered: what they did to rollouts of other scopes than their own, against rollouts without experience.

For an entry m and another scope s, over the guided rollouts of s that were shown m and whose outcome is known:

    n  rollouts,   w  successes,   x = Σ free rate of s when each ended     what as many free rollouts would have won

m is blocked in s when n ≥ `LEAST_ROLLOUTS` and the upper end of the one-sided 95 % Wilson interval of w / n lies below x / n. The free
rate is that of about the last `MEMORY` free rollouts of s, the free half of the same step included, taken *at that time*: an actor that has
improved since must not make its earlier rollouts look bad. Rollouts before the first free one of s are not compared.

What is not offered gathers no evidence, so a block stays, until rollouts that had begun before it clear it. A rewritten text starts
anew; a merged one inherits the sums of its parents.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import sqrt

from complementary_rl.experience.store import BankStore
from complementary_rl.experience.success_rate import faded

LEAST_ROLLOUTS = 8
_Z = 1.6448536269514722
"""The normal distribution's 95 % point."""
_ROUTES = "SELECT scope, rollouts, successes, expected FROM routes WHERE entry_id = ? ORDER BY scope"


@dataclass(frozen=True, slots=True)
class Route:
    """What became of rollouts of `scope`, another than the entry's own, that were shown an entry; `expected`: see x above."""

    scope: str
    rollouts: int
    successes: int
    expected: float

    @property
    def blocked(self) -> bool:
        n = self.rollouts
        return n >= LEAST_ROLLOUTS and wilson_upper(self.successes, n) < self.expected / n


def wilson_upper(successes: int, n: int) -> float:
    """The upper end of the one-sided 95 % Wilson score interval of a success rate; n > 0."""
    share, z2 = successes / n, _Z * _Z
    return (share + z2 / (2 * n) + _Z * sqrt(share * (1 - share) / n + z2 / (4 * n * n))) / (1 + z2 / n)


class Routing:
    """Keeps the sums in the store and, in memory, who is blocked where. Guarded by the bank's lock; changes in its transactions."""

    def __init__(self, store: BankStore) -> None:
        self._store = store
        self._blocked: dict[str, set[int]] = defaultdict(set)
        for entry_id, *route in store.stream(
            f"SELECT entry_id, scope, rollouts, successes, expected FROM routes WHERE rollouts >= {LEAST_ROLLOUTS}"
        ):
            self._judge(entry_id, Route(*route))

    def blocked(self, scope: str) -> Collection[int]:
        """Entries, live or not, that are not offered to rollouts of `scope`."""
        return self._blocked.get(scope, ())

    def pairs(self) -> list[tuple[int, str]]:
        """(entry id, scope) of every block."""
        return [(entry_id, scope) for scope, entries in self._blocked.items() for entry_id in entries]

    def routes(self, entry_id: int) -> list[Route]:
        """By scope, those an entry has been compared in."""
        return [Route(*row) for row in self._store.rows(_ROUTES, (entry_id,))]

    def free_rate(self, scope: str) -> float | None:
        """Successes per free rollout; None before the first."""
        rows = self._store.rows("SELECT won / played FROM free_rates WHERE scope = ?", (scope,))
        return float(rows[0][0]) if rows else None

    def count_free(self, scope: str, success: bool) -> None:
        rows = self._store.rows("SELECT won, played FROM free_rates WHERE scope = ?", (scope,))
        won, played = rows[0] if rows else (0.0, 0.0)
        self._store.run("INSERT OR REPLACE INTO free_rates VALUES (?, ?, ?)", (scope, *faded(won, played, success)))

    def count_guided(self, entry_id: int, scope: str, success: bool) -> None:
        """A rollout of `scope`, which is not the entry's own, was shown it."""
        free = self.free_rate(scope)
        if free is not None:
            self._add(entry_id, Route(scope, 1, int(success), free))

    def inherit(self, entry_id: int, scope: str, parents: Sequence[int]) -> None:
        """Give an entry of `scope`, merged from `parents`, the sums of theirs."""
        for parent in parents:
            for route in self.routes(parent):
                if route.scope != scope:
                    self._add(entry_id, route)

    def _add(self, entry_id: int, more: Route) -> None:
        self._store.run(
            "INSERT INTO routes VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET rollouts = rollouts + excluded.rollouts, "
            "successes = successes + excluded.successes, expected = expected + excluded.expected",
            (entry_id, more.scope, more.rollouts, more.successes, more.expected),
        )
        self._judge(entry_id, next(route for route in self.routes(entry_id) if route.scope == more.scope))

    def _judge(self, entry_id: int, route: Route) -> None:
        if route.blocked:
            self._blocked[route.scope].add(entry_id)
        else:
            self._blocked[route.scope].discard(entry_id)
