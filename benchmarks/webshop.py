"""How well shoppers without a model do in the shop, and how fast it is: `python -m benchmarks.webshop [--data FOLDER]`."""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from complementary_rl.envs.webshop.reward import reward
from complementary_rl.envs.webshop.shoppers import Shopper, careful_shopper, random_shopper
from complementary_rl.envs.webshop.suite import WebShop, WebShopEnv
from complementary_rl.seeds import rng
from complementary_rl.types import Task


@dataclass(slots=True)
class Tally:
    """Sums over episodes; `seconds` is processor time in `step`."""

    episodes: int = 0
    successes: int = 0
    bought: int = 0
    score: float = 0.0
    turns: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        n = self.episodes
        rates = f"success {self.successes / n:.2f}, score {self.score / n:.2f}, bought {self.bought / n:.2f}, {self.turns / n:.1f} actions"
        return f"{rates}, {self.turns / self.seconds:,.0f} steps/s"


def play(env: WebShopEnv, task: Task, shopper: Shopper, tally: Tally) -> None:
    """One episode; it also ends when the shopper leaves."""
    env.reset(task, 0)
    tally.episodes += 1
    action = next(shopper)
    while True:
        start = time.process_time()
        observation, reward, bought, truncated, info = env.step(action)
        tally.seconds += time.process_time() - start
        tally.turns += 1
        if bought or truncated:
            break
        try:
            action = shopper.send(observation)
        except StopIteration:
            break
    tally.bought += bought
    tally.score += reward
    tally.successes += info["success"]


def measure(suite: WebShop, shopper: Callable[[Task], Shopper], episodes: int) -> Tally:
    """Held-out tasks, from the first."""
    env, tally = suite.make_env(), Tally()
    for task in suite.tasks("heldout")[:episodes]:
        play(env, task, shopper(task), tally)
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="", help="folder with the original's files; without it the catalogue is generated")
    parser.add_argument("--goals", default="synthetic", choices=("synthetic", "human"))
    parser.add_argument("--episodes", type=int, default=500)
    options = parser.parse_args()
    start = time.process_time()
    suite = WebShop(options.data, goals=options.goals)
    print(f"{len(suite.shop.catalogue)} products, made ready in {time.process_time() - start:.1f} s of processor time")
    goals = [suite.goal(task) for task in suite.tasks("heldout")[: options.episodes]]
    if options.goals == "synthetic":
        scores = [reward(goal.product, dict(goal.options), goal) for goal in goals]
        print(
            f"{'the goal':>8}: success {np.mean([score == 1 for score in scores]):.2f}, score {np.mean(scores):.2f}, by buying just that"
        )
    shoppers: dict[str, Callable[[Task], Shopper]] = {
        "careful": lambda task: careful_shopper(task.description),
        "random": lambda task: random_shopper(task.description, rng("benchmark/webshop", task.id)),
    }
    for name, shopper in shoppers.items():
        print(f"{name:>8}: {measure(suite, shopper, options.episodes)}")


if __name__ == "__main__":
    main()
