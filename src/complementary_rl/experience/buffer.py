"""The extractor's buffer Bφ: credited generations gathered across rollout steps until there are enough to train on.

It holds ids, credits and the counters of Eq 7. Token ids stay in the bank's store and are fetched for the batch that is trained.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from complementary_rl.experience.credit import Credit, merge_credits
from complementary_rl.objectives.reweighting import trained_recently


@dataclass(frozen=True, slots=True)
class BufferedCredit:
    """One generation of a batch: the extractor version that sampled it, its mean credit, and its Eq 7 counters before this batch
    (`last_trained_update` None: never trained)."""

    generation_id: str
    version: int
    credit: float
    rollouts: int
    times_trained: int = 0
    last_trained_update: int | None = None


@dataclass(slots=True)
class _Counter:
    """How often, and in which update last, a generation of `version` was trained."""

    version: int
    times_trained: int
    last_trained_update: int


class ExtractorBuffer:
    """Waiting credits, one per distinct generation, and who was trained when.

    `max_staleness`: generations more than this many extractor versions old are dropped and counted. `retrain_gap`: δ of Eq 7; a
    generation whose weight would be 0 because of it *waits*, gathering credit, and is taken once the gap is over.

    Counters of generations too old to be trained again are forgotten, so memory is bounded by (`max_staleness` + 1) batches of
    them.
    """

    def __init__(self, *, max_staleness: int, retrain_gap: int) -> None:
        self.max_staleness = max_staleness
        self.retrain_gap = retrain_gap
        self.dropped_stale = 0
        """Generations dropped for their age since the start of the run."""
        self._waiting: dict[str, tuple[int, Credit]] = {}
        self._training: dict[str, tuple[int, Credit]] = {}
        self._counters: dict[str, _Counter] = {}

    def __len__(self) -> int:
        """Distinct generations waiting, eligible now or not."""
        return len(self._waiting)

    def add(self, generation_id: str, version: int, credit: Credit) -> None:
        """Credit a generation sampled by extractor `version`. If it is waiting already, credits are averaged over all their
        rollouts."""
        known = self._waiting.get(generation_id)
        if known is None:
            self._waiting[generation_id] = (version, credit)
            return
        assert known[0] == version, f"generation {generation_id} was sampled by one version"
        self._waiting[generation_id] = (version, merge_credits(known[1], credit))

    def ready(self, batch_size: int, *, version: int, update: int) -> bool:
        """Whether `take` with the same arguments would return a batch."""
        return len(self._eligible(version, update)) >= batch_size

    def take(self, batch_size: int, *, version: int, update: int) -> list[BufferedCredit]:
        """A batch of exactly `batch_size` for the extractor's update number `update`, or [] while fewer are eligible.

        `version` is the extractor's version now. Those trained least often come first (popular entries are credited again and
        again, and Eq 7 would leave a batch of their writers nearly without weight), then the oldest versions, then the order of
        arrival. What was taken is
        kept aside for `state_dict` until `mark_trained` is called.
        """
        self._drop_stale(version)
        eligible = self._eligible(version, update)
        if len(eligible) < batch_size:
            return []
        batch = []
        for generation_id in sorted(eligible, key=lambda waiting: (self.times_trained(waiting), self._waiting[waiting][0]))[
            :batch_size
        ]:
            sampled_by, credit = self._training[generation_id] = self._waiting.pop(generation_id)
            counter = self._counters.get(generation_id)
            batch.append(
                BufferedCredit(
                    generation_id,
                    sampled_by,
                    credit.value,
                    credit.rollouts,
                    times_trained=counter.times_trained if counter else 0,
                    last_trained_update=counter.last_trained_update if counter else None,
                )
            )
        return batch

    def mark_trained(self, generation_ids: Iterable[str], *, update: int) -> None:
        """Count that these generations, taken before, were trained in `update`."""
        for generation_id in generation_ids:
            version, _ = self._training.pop(generation_id)
            counter = self._counters.setdefault(generation_id, _Counter(version, 0, update))
            counter.times_trained += 1
            counter.last_trained_update = update

    def times_trained(self, generation_id: str) -> int:
        """c_train(m) of a generation that is still young enough to be trained; 0 for any other."""
        counter = self._counters.get(generation_id)
        return counter.times_trained if counter else 0

    def state_dict(self) -> dict[str, Any]:
        """JSON-able and complete; a batch that is being trained counts as waiting, so that a crash loses no credit."""
        merged = ExtractorBuffer(max_staleness=self.max_staleness, retrain_gap=self.retrain_gap)
        for held in (self._training, self._waiting):
            for generation_id, (version, credit) in held.items():
                merged.add(generation_id, version, credit)
        return {
            "waiting": [[key, version, credit.value, credit.rollouts] for key, (version, credit) in merged._waiting.items()],
            "counters": {key: asdict(counter) for key, counter in self._counters.items()},
            "dropped_stale": self.dropped_stale,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replace everything with what `state_dict` returned."""
        self._waiting = {key: (version, Credit(value, rollouts)) for key, version, value, rollouts in state["waiting"]}
        self._training = {}
        self._counters = {key: _Counter(**counter) for key, counter in state["counters"].items()}
        self.dropped_stale = state["dropped_stale"]

    def _eligible(self, version: int, update: int) -> list[str]:
        return [
            generation_id
            for generation_id, (sampled_by, _) in self._waiting.items()
            if version - sampled_by <= self.max_staleness and not self._trained_recently(generation_id, update)
        ]

    def _trained_recently(self, generation_id: str, update: int) -> bool:
        counter = self._counters.get(generation_id)
        return counter is not None and trained_recently(counter.last_trained_update, update, self.retrain_gap)

    def _drop_stale(self, version: int) -> None:
        oldest = version - self.max_staleness
        fresh = {key: held for key, held in self._waiting.items() if held[0] >= oldest}
        self.dropped_stale += len(self._waiting) - len(fresh)
        self._waiting = fresh
        self._counters = {key: counter for key, counter in self._counters.items() if counter.version >= oldest}
