"""Small suites for tests: a counter that works, and ways to break it."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from complementary_rl.envs.protocol import Suite
from complementary_rl.types import Split, Task

Step = tuple[Any, Any, Any, Any, Any]


def task(number: int, split: Split = "train", **fields: Any) -> Task:
    values: dict[str, Any] = {"id": f"count/{number}", "env": "count", "description": "Say go three times.", "seed": number}
    return Task(**(values | {"split": split} | fields))


class CountEnv:
    """Ends with success after three times "go", and tells how often it heard it. `step_hook` may replace what a step returns."""

    def __init__(self, step_hook: Callable[["CountEnv", str, Step], Any] | None = None) -> None:
        self.step_hook = step_hook
        self.count = 0
        self.closed = False
        self.resets = 0

    def reset(self, task: Task, seed: int) -> tuple[str, dict[str, Any]]:
        self.count = 0
        self.resets += 1
        return f"level {task.seed}, start {seed % 7}", {}

    def step(self, action: str) -> Any:
        self.count += 1
        done = self.count == 3
        result: Step = (f"heard {self.count}", float(done), done, False, {"success": done})
        return result if self.step_hook is None else self.step_hook(self, action, result)

    def close(self) -> None:
        self.closed = True


class CountSuite(Suite):
    """Two train and two held-out tasks; `env` makes the environments."""

    name = "count"
    instructions = "Say go."
    max_turns = 5

    def __init__(self, env: Callable[[], Any] = CountEnv) -> None:
        self.env = env
        self.made: list[Any] = []

    def tasks(self, split: Split) -> Sequence[Task]:
        return [task(number, split) for number in ((0, 1) if split == "train" else (2, 3))]

    def make_env(self) -> Any:
        self.made.append(self.env())
        return self.made[-1]


def hang(seconds: float = 2.0) -> None:
    """Long against the tests' time limits, short enough that left-behind threads do not outlive the session."""
    time.sleep(seconds)
