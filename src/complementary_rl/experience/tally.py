"""What has happened since it was last asked: counts, means, and messages for people."""

from collections import Counter

from complementary_rl.types import Metrics


class Tally:
    """Counts by name, means by name, events in order. Taking them starts anew."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._values: dict[str, list[float]] = {}
        self._events: list[str] = []

    def count(self, name: str, number: int = 1) -> None:
        if number:
            self._counts[name] += number

    def observe(self, name: str, value: float) -> None:
        self._values.setdefault(name, []).append(value)

    def tell(self, message: str) -> None:
        self._events.append(message)

    def take(self) -> Metrics:
        """The counts (without those that are zero) and the means (without those of nothing), by name."""
        counts, self._counts = self._counts, Counter()
        values, self._values = self._values, {}
        means = {name: sum(seen) / len(seen) for name, seen in values.items()}
        return {name: float(value) for name, value in sorted({**counts, **means}.items())}

    def take_events(self) -> list[str]:
        events, self._events = self._events, []
        return events
