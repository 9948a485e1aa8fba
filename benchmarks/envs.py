"""All registered suites in one table: how many tasks, how quick, and how far chance and the suite's expert get.

    python -m benchmarks.envs
    python -m benchmarks.envs sokoban frozen-lake --episodes 100
    python -m benchmarks.envs textarena --options '{"id": "GuessTheNumber-v0"}'

Suites come from the registry; one whose packages or options are missing is listed with what it wants. Each seed plays the training
tasks that follow those of the seed before. Seconds are of the process's own time on the processor, so that other work on the machine
matters less; an environment that works in another process looks quicker than it is.
"""

import argparse
import json
import math
from dataclasses import dataclass, field
from time import process_time
from typing import Any

from benchmarks.synthetic import np, print_machine, print_table
from complementary_rl.envs.playing import Player, expert_player, play_episode, random_player
from complementary_rl.envs.protocol import StepResult, Suite, TextEnv
from complementary_rl.envs.registry import make_suite, suite_names
from complementary_rl.errors import UserError
from complementary_rl.seeds import derive_seed
from complementary_rl.types import Split, Task


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suites", nargs="*", help="names; all registered ones without")
    parser.add_argument("--episodes", type=int, default=20, help="per seed and player")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--options", type=json.loads, default={}, help="of the suites, as JSON")
    options = parser.parse_args()
    print_machine()
    header = ["suite", "train", "held-out", "needs", "reset ms", "steps/s", "chance", "expert", "actions of expert"]
    print_table(header, [row(name, options.episodes, options.seeds, **options.options) for name in options.suites or suite_names()])
    print(f"\nsuccess: mean over {options.seeds} seeds (least–most), {options.episodes} episodes each, on training tasks in turn")


def row(name: str, episodes: int, seeds: int, **options: Any) -> list[str]:
    try:
        suite = make_suite(name, **options)
    except UserError as error:
        return [name, *["–"] * 2, wanted(error), *["–"] * 5]
    train, heldout = suite.tasks("train"), suite.tasks("heldout")
    clock = Clock(suite.make_env())
    rounds = rounds_of(suite, "train", episodes, seeds)
    chance, _ = success(suite, clock, rounds, expert=False)
    has_expert = suite.expert(*rounds[0][0]) is not None
    best, actions = success(suite, clock, rounds, expert=True) if has_expert else ("–", "–")
    clock.close()
    return [
        name,
        str(len(train)),
        str(len(heldout)),
        suite.needs or "–",
        clock.reset_ms(),
        clock.steps_per_second(),
        chance,
        best,
        actions,
    ]


def rounds_of(suite: Suite, split: Split, episodes: int, seeds: int) -> list[list[tuple[Task, int]]]:
    """The episodes (task, seed) of each of `seeds` seeds; each plays the tasks that follow those of the one before."""
    tasks = suite.tasks(split)
    return [
        [(tasks[(seed * episodes + i) % len(tasks)], derive_seed("benchmark", seed, i)) for i in range(episodes if tasks else 0)]
        for seed in range(seeds)
    ]


def wanted(error: UserError) -> str:
    """What a suite wants, short enough for a table: the command to run, or what is said first."""
    return str(error).splitlines()[0].rpartition("run: ")[2].partition("; ")[0]


def success(suite: Suite, env: TextEnv, rounds: list[list[tuple[Task, int]]], *, expert: bool) -> tuple[str, str]:
    """Share of episodes solved, as mean and range over the rounds, and the mean number of actions of those solved."""
    shares, actions = [], []
    for episodes in rounds:
        outcomes = [play_episode(suite, env, task, seed, player(suite, task, seed, expert=expert)) for task, seed in episodes]
        shares.append(float(np.mean([outcome.success for outcome in outcomes])))
        actions += [outcome.actions for outcome in outcomes if outcome.success]
    return spread_of(shares), f"{np.mean(actions):.1f}" if actions else "–"


def spread_of(shares: list[float]) -> str:
    return f"{np.mean(shares):.2f} ({min(shares):.2f}–{max(shares):.2f})"


def player(suite: Suite, task: Task, seed: int, *, expert: bool) -> Player:
    return expert_player(suite, task, seed) if expert else random_player(suite, task, seed)


@dataclass
class Clock:
    """The environment, timed."""

    env: TextEnv
    resets: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)

    def reset(self, task: Task, seed: int) -> tuple[str, dict[str, object]]:
        start = process_time()
        result = self.env.reset(task, seed)
        self.resets.append(process_time() - start)
        return result

    def step(self, action: str) -> StepResult:
        start = process_time()
        result = self.env.step(action)
        self.steps.append(process_time() - start)
        return result

    def close(self) -> None:
        self.env.close()

    def reset_ms(self) -> str:
        return f"{1e3 * float(np.mean(self.resets)):.2f}"

    def steps_per_second(self) -> str:
        rate = len(self.steps) / max(sum(self.steps), 1e-9)
        digits = 10 ** (int(math.log10(max(rate, 1))) - 1)
        return f"{max(1, round(rate / digits)) * max(digits, 1):,.0f}"


if __name__ == "__main__":
    main()
