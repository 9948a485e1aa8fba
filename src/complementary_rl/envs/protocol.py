"""What an environment is: text in, text out, many turns, seeded. In process we follow Gymnasium's 5-tuple, with text.

A *suite* names a family of tasks (train and held-out, disjoint) and makes environments that can play any of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from complementary_rl.types import Split, Task

StepResult = tuple[str, float, bool, bool, dict[str, Any]]

Policy = Callable[[str], str | None]
"""Plays one episode: given an observation, the next action, or None when it gives up. It may remember what it saw; a new episode needs a
new one."""


class TextEnv(Protocol):
    """One environment instance. It plays one episode at a time and is used by one thread at a time.

    ``info["actions"]``, where `reset` gives it, is a sequence of actions that make sense; it holds until a `step` gives another. People
    who play by hand, random play and `check_env` read it; actors never see it, but with `actor.constrained` can say nothing else.
    """

    def reset(self, task: Task, seed: int) -> tuple[str, dict[str, Any]]:
        """Begin an episode of `task`; the same `(task, seed)` and actions must give the same episode. Returns (observation, info)."""
        ...

    def step(self, action: str) -> StepResult:
        """Take the actor's text (stripped). Returns (observation, reward, terminated, truncated, info).

        An action that cannot be understood is an observation that says so, not an exception. When the episode ends
        ``info["success"]`` (bool) tells whether the task was solved.
        """
        ...

    def close(self) -> None:
        """Free what the environment holds. Called once."""
        ...


@dataclass(frozen=True, slots=True)
class Part:
    """Tasks that are dealt, measured and, when their environments fail, set aside together.

    `weight` is the part's share of a step's groups in relation to the other parts of the suite.
    """

    name: str
    tasks: Sequence[Task]
    weight: float = 1.0


class Suite(ABC):
    """A family of tasks that share rules. Subclass it, or build one with the class attributes below."""

    name: str
    """Registry name, also the default bank scope of its tasks."""
    instructions: str = ""
    """The rules and the actions, shown to the actor at the start of every episode; may be empty."""
    max_turns: int = 30
    """The most actions in one episode."""
    step_seconds: float = 0.0
    """Seconds that one reset or step may take by rights, where that is long: a run must give it more (``env.step_timeout``)."""
    needs: str = ""
    """The extra that it needs, with the licence of its packages, for people to read; empty for the base install."""

    @abstractmethod
    def tasks(self, split: Split) -> Sequence[Task]:
        """All tasks of a split, in a fixed order. Train and held-out ids are disjoint."""

    @abstractmethod
    def make_env(self) -> TextEnv:
        """A new environment that can play every task of the suite."""

    def instructions_for(self, task: Task) -> str:
        """The rules of one task."""
        return self.instructions

    def max_turns_for(self, task: Task) -> int:
        """The most actions in an episode of one task."""
        return self.max_turns

    def parts(self, split: Split) -> Sequence[Part]:
        """The tasks of a split in the parts that take turns, each task in one part; a suite is a single part unless it says otherwise."""
        return (Part(self.name, self.tasks(split)),)

    def part_of(self, task: Task) -> str:
        """The name of the part a task belongs to."""
        return self.name

    def judge_entry(self, task: Task, text: str) -> bool | None:
        """Whether an entry is true and useful for `task`, where the suite can know; None where it cannot.

        A diagnostic for metrics and studies only: nothing that trains may read it.
        """
        return None

    def expert(self, task: Task, seed: int) -> Policy | None:
        """A policy that plays the episode of `(task, seed)` as well as the suite knows how; None where it knows none.

        For benchmarks and demonstrations. It may know what no actor can see, and is asked once per observation, the opening one first.
        """
        return None
