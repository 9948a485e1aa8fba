"""Which episodes a step plays: groups of rollouts that share a task and an initial state, dealt to conditions."""

from collections.abc import Sequence
from dataclasses import dataclass

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


def tasks_for_step(tasks: Sequence[Task], groups: int, step: int, run_seed: int) -> list[Task]:
    """The tasks of a step's groups: shuffled passes over all tasks, a pure function of the step so that a resumed run agrees."""
    places = [divmod(position, len(tasks)) for position in range(step * groups, (step + 1) * groups)]
    orders = {epoch: rng(run_seed, "task-order", epoch).permutation(len(tasks)) for epoch in {epoch for epoch, _ in places}}
    return [tasks[int(orders[epoch][offset])] for epoch, offset in places]


def group_seed(run_seed: int, purpose: str, step: int, group: int, task: Task) -> int:
    """Initial-state seed of a group; `purpose` ("train", "eval") keeps evaluation's states apart from training's."""
    return derive_seed(run_seed, purpose, "initial-state", task.id, step, group)


def sampling_seed(run_seed: int, purpose: str, step: int, group: int, member: int) -> int:
    """Seed of one rollout's own draws."""
    return derive_seed(run_seed, purpose, "rollout", step, group, member)
