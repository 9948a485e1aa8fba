"""A suite whose environments fail in every way there is, for `benchmarks.fault_storm`."""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from subprocess import PIPE, Popen
from typing import Any

from complementary_rl.envs.protocol import Suite
from complementary_rl.seeds import rng
from complementary_rl.types import Split, Task

RAISES_IN_RESET, RAISES, DIES = "raises in reset", "raises in step", "loses its process"
SLOW, STUCK = "hangs for a while", "hangs to the end of the run"
NO_TEXT, NAN, SILENT = "tells no text", "rewards NaN", "ends without success"
FAULTS = {
    RAISES_IN_RESET: "raised",
    RAISES: "raised",
    DIES: "raised",
    SLOW: "hung",
    STUCK: "hung",
    NO_TEXT: "bad_observation",
    NAN: "bad_reward",
    SILENT: "bad_success",
}
"""What is injected, and what a run has to call it."""


class Storm(Suite):
    """Say a word of an odd length; a child process reads every word back.

    A `share` of the first `episodes` meets a fault, drawn by `seed`. `slow` is the seconds of a hang that ends; the others last until
    `over` is set.
    """

    name = "storm"
    instructions = "Say a word of odd length."
    max_turns = 3

    def __init__(self, episodes: int, share: float, slow: float, seed: int) -> None:
        self.limit, self.share, self.slow, self.seed = episodes, share, slow, seed
        self.begun = itertools.count()
        self.injected: Counter[str] = Counter()
        self.over = threading.Event()
        MADE.append(self)

    def tasks(self, split: Split) -> Sequence[Task]:
        numbers = range(8) if split == "train" else range(8, 16)
        return [Task(f"storm/{n}", self.name, f"Find the exit of room {n}.", n, split, f"storm/{n}") for n in numbers]

    def make_env(self) -> "StormEnv":
        return StormEnv(self)

    def draw(self) -> str:
        """The fault of the next episode, or none."""
        index = next(self.begun)
        random = rng("storm", self.seed, index)
        if index >= self.limit or random.random() >= self.share:
            return ""
        fault = list(FAULTS)[random.integers(len(FAULTS))]
        self.injected[fault] += 1
        return fault


MADE: list[Storm] = []
"""Suites in the order in which runs made them, so that who started a run can look at its suite."""


class StormEnv:
    def __init__(self, suite: Storm) -> None:
        self.suite = suite
        self.turns, self.fault = 0, ""
        self.child = Popen(["cat"], stdin=PIPE, stdout=PIPE)

    def reset(self, task: Task, seed: int) -> tuple[str, dict[str, Any]]:
        self.turns, self.fault = 0, self.suite.draw()
        if self.fault == RAISES_IN_RESET:
            raise RuntimeError("no level today")
        return f"at {seed % 15 + 1} {seed // 15 % 15 + 1}", {}

    def step(self, action: str) -> Any:
        self.turns += 1
        self._fail()
        won = len(self._echo(action)) % 2 == 1
        if self.fault == SILENT:
            return "the end", 0.0, True, False, {}
        observation = None if self.fault == NO_TEXT else f"at {self.turns} {len(action) % 15}"
        reward = float("nan") if self.fault == NAN else float(won)
        return observation, reward, won, self.turns == self.suite.max_turns, {"success": won}

    def _fail(self) -> None:
        if self.fault == RAISES:
            raise RuntimeError("the level fell apart")
        if self.fault == DIES:
            self.child.kill()
            self.child.wait()
        if self.fault == SLOW:
            time.sleep(self.suite.slow)
        if self.fault == STUCK:
            self.suite.over.wait()

    def _echo(self, action: str) -> str:
        """What the child answers. Raises OSError when it is dead."""
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(action.replace("\n", " ").encode(errors="replace") + b"\n")
        self.child.stdin.flush()
        return self.child.stdout.readline().decode()[:-1]

    def close(self) -> None:
        self.child.kill()
        self.child.wait()
        for pipe in (self.child.stdin, self.child.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
