"""Which episodes a step plays: groups of rollouts that share a task and an initial state, dealt to parts and to conditions."""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import count, islice
from math import floor

from complementary_rl.envs.protocol import Part
from complementary_rl.seeds import derive_seed, rng
from complementary_rl.types import Task


@dataclass(frozen=True, slots=True)
class Shown:
    """Experience offered to a rollout: bank entries as (id, text), in order of rank. Empty means the rollout is free."""

    entries: tuple[tuple[int, str], ...] = ()

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(entry_id for entry_id, _ in self.entries)

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.entries]


@dataclass(frozen=True, slots=True)
class EpisodePlan:
    """One episode to play. `seed` fixes the initial state and is shared by the group; `sampling_seed` is the rollout's own.

    `tool` allows search_and_ask; it must be False for a free rollout.
    """

    id: str
    task: Task
    step: int
    group: int
    member: int
    seed: int
    sampling_seed: int
    shown: Shown = Shown()
    tool: bool = False

    def __post_init__(self) -> None:
        assert self.shown.entries or not self.tool, "a free rollout must have no way to experience, the tool included"


def tasks_for_step(parts: Sequence[Part], groups: int, step: int, run_seed: int) -> list[Task]:
    """The tasks of a step's groups, part by part: a pure function of the step, so that a resumed run agrees.

    Groups are dealt to parts by weight, and each part makes shuffled passes over its own tasks, in the order of a run of it alone.
    """
    dealt = sorted(_deal([part.weight for part in parts], step * groups, (step + 1) * groups))
    places = [(parts[index].tasks, *divmod(turn, len(parts[index].tasks))) for index, turn in dealt]
    orders = {
        (epoch, size): rng(run_seed, "task-order", epoch).permutation(size)
        for epoch, size in {(epoch, len(tasks)) for tasks, epoch, _ in places}
    }
    return [tasks[int(orders[epoch, len(tasks)][offset])] for tasks, epoch, offset in places]


def _deal(weights: Sequence[float], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Whose groups the groups `start` to `stop` of a run are, as (index of the weight, how many it had before).

    The t-th group of a share w of the whole is due at (t + ½)/w, and groups come in the order in which they are due: no share is ever
    more than a few groups ahead or behind. Fractions, because a tie must be one on every machine.
    """
    total = sum(Fraction(str(weight)) for weight in weights)
    shares = [Fraction(str(weight)) / total for weight in weights]
    # Up to this moment ⌊w · moment + ½⌋ groups of each share were due, which together are not more than `start`.
    moment = max(0, start - len(weights))
    had = [floor(share * moment + Fraction(1, 2)) for share in shares]

    def due(index: int) -> Iterator[tuple[Fraction, int, int]]:
        return (((turn + Fraction(1, 2)) / shares[index], index, turn) for turn in count(had[index]))

    order = heapq.merge(*(due(index) for index in range(len(weights))))
    return ((index, turn) for _, index, turn in islice(order, start - sum(had), stop - sum(had)))


def group_seed(run_seed: int, purpose: str, step: int, group: int, task: Task) -> int:
    """Initial-state seed of a group; `purpose` ("train", "eval") keeps evaluation's states apart from training's."""
    return derive_seed(run_seed, purpose, "initial-state", task.id, step, group)


def sampling_seed(run_seed: int, purpose: str, step: int, group: int, member: int) -> int:
    """Seed of one rollout's own draws."""
    return derive_seed(run_seed, purpose, "rollout", step, group, member)
