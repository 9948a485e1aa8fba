"""An environment of your own: guess a number by "higher" and "lower". `crl envs check examples/custom_env.py:GuessNumber`"""

import re

from complementary_rl.envs.protocol import Suite
from complementary_rl.seeds import rng
from complementary_rl.types import Task


class GuessNumber(Suite):
    name = "guess-number"
    instructions = "Guess the whole number I think of, from 1 to 100. Answer with a number only, such as 42."
    max_turns = 7

    def __init__(self, tasks=16):
        self.seeds = {"train": range(tasks), "heldout": range(tasks, 2 * tasks)}

    def tasks(self, split):
        return [Task(f"guess/{seed}", self.name, "Guess a number.", seed, split, scope=self.name) for seed in self.seeds[split]]

    def make_env(self):
        return GuessNumberEnv()


class GuessNumberEnv:
    def reset(self, task, seed):
        self.secret, self.turns = int(rng("guess", task.seed, seed).integers(1, 101)), 0
        return "What is your first guess?", {}

    def step(self, action):
        self.turns += 1
        guess = int(action) if re.fullmatch(r"[0-9]{1,3}", action) else None
        won = guess == self.secret
        reply = "not a number from 1 to 100" if guess is None else "right" if won else "higher" if guess < self.secret else "lower"
        return reply, float(won), won, self.turns >= GuessNumber.max_turns, {"success": won}

    def close(self):
        pass
