"""Tasks of the suite `swe` played by its expert and by nobody, and how long it takes.

    python -m benchmarks.swe DIR

DIR is a folder that `python -m complementary_rl.envs.swe.make` wrote. The expert must solve every task, and to submit at once none.
"""

import argparse
import sys
import time
from collections import defaultdict

import numpy as np

from benchmarks.synthetic import print_machine, print_table
from complementary_rl.envs.protocol import Policy
from complementary_rl.envs.swe.episode import RepositoryEnv
from complementary_rl.envs.swe.suite import Swe
from complementary_rl.types import Split, Task

SPLITS: tuple[Split, ...] = ("train", "heldout")
_COMMANDS = ("bash true", "bash grep -rn def .", "bash python -c 'import json'", "view .")
_REPEATED = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="a folder of tasks")
    parser.add_argument("--split", choices=["train", "heldout"], help="one of the two; both without")
    parser.add_argument("--test-seconds", type=int, default=300, help="the longest time for all tests")
    options = parser.parse_args()
    print_machine()
    suite = Swe(options.data, test_seconds=options.test_seconds, command_seconds=60)
    seconds: dict[str, list[float]] = defaultdict(list)
    tasks = [task for split in SPLITS if options.split in (None, split) for task in suite.tasks(split)]
    rewards: dict[str, list[float]] = {"expert": [], "nobody": []}
    env = suite.make_env()
    for task in tasks:
        rewards["expert"].append(play(env, task, suite.expert(task, 0), seconds, "submit, solved"))
        rewards["nobody"].append(play(env, task, lambda _: "submit", seconds, "submit, not solved"))
        print(f"{task.id}: expert {rewards['expert'][-1]:g}, nobody {rewards['nobody'][-1]:g}", flush=True)
        env.reset(task, 0)
        for action in _COMMANDS * _REPEATED:
            timed(env, action, seconds, action)
    env.close()
    print_table(["who", "tasks", "mean reward"], [[who, str(len(got)), f"{np.mean(got):.2f}"] for who, got in rewards.items()])
    rows = [[what, str(len(times)), f"{np.median(times):.2f}", f"{max(times):.2f}"] for what, times in seconds.items()]
    print_table(["what", "times", "median s", "longest s"], rows)
    sys.exit(min(rewards["expert"]) < 1 or max(rewards["nobody"]) > 0)


def play(env: RepositoryEnv, task: Task, policy: Policy, seconds: dict[str, list[float]], what: str) -> float:
    """The reward of an episode."""
    start = time.perf_counter()
    observation, _ = env.reset(task, 0)
    seconds["reset"].append(time.perf_counter() - start)
    total, over = 0.0, False
    while not over:
        action = policy(observation)
        observation, reward, over = timed(env, action, seconds, what if action == "submit" else "str_replace")
        total += reward
    return total


def timed(env: RepositoryEnv, action: str, seconds: dict[str, list[float]], what: str) -> tuple[str, float, bool]:
    start = time.perf_counter()
    observation, reward, terminated, truncated, _ = env.step(action)
    seconds[what].append(time.perf_counter() - start)
    return observation, reward, terminated or truncated


if __name__ == "__main__":
    main()
