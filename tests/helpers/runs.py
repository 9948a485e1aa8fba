"""Tiny training runs: real rooms of NetHack, the shipped models, a few seconds."""

import itertools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from complementary_rl.config import Config
from complementary_rl.config_file import load_config
from complementary_rl.configs import find_config
from complementary_rl.envs.protocol import Suite
from complementary_rl.experience.bank import Bank
from complementary_rl.experience.embedding import make_embedder
from complementary_rl.types import Split, Task

TINY = (
    "run.name=tiny",
    "run.steps=3",
    "run.warmup_steps=1",
    "env.options={rooms = 2, heldout_rooms = 2, size = 6, max_turns = 6}",
    "env.groups_per_step=2",
    "env.group_size=4",
    "retrieval.entries_per_group=2",
    "extractor.batch_size=4",
    "extractor.sampling.max_new_tokens=24",
    "merge.interval=2",
    "eval.episodes=4",
    "checkpoint.interval=1",
)
"""Overrides of the quickstart; small rooms, so that some episodes succeed and there is something to learn from."""


def tiny_config(directory: Path, *overrides: str) -> Config:
    """A run of three steps of two groups of four."""
    return load_config(find_config("quickstart"), [*TINY, f"run.dir={str(directory)!r}", *overrides])


def tiny_arguments(directory: Path, *overrides: str) -> list[str]:
    """The same as arguments of `crl train`."""
    pairs = [*TINY, f"run.dir={directory}", *overrides]
    return ["train", "quickstart", *(f"--{pair}" for pair in pairs)]


def records(directory: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """The records of `metrics.jsonl`, of one kind or all."""
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if kind in (None, record["kind"])]


def timeless(directory: Path) -> list[dict[str, Any]]:
    """The records without what a clock measured."""
    return [{key: value for key, value in record.items() if key not in ("wall", "time")} for record in records(directory)]


def bank_tables(path: Path) -> dict[str, list[Any]]:
    """Every row of every table of a bank."""
    with Bank.open(path, Config().bank, make_embedder("hashing"), run_id=None, read_only=True) as bank:
        store = bank._state.store
        return {table: store.rows(f"SELECT * FROM {table} ORDER BY 1, 2") for table in store.tables()}


def newest_checkpoint(directory: Path) -> Path:
    return max((directory / "checkpoints").glob("step_*"), key=lambda path: int(path.name.removeprefix("step_")))


class Parity(Suite):
    """No game at all: an action with an odd number of letters wins, a longer one pays a little more.

    `fault` ("raised", "hung", "nan", "huge", "bytes", "silent") strikes at every `every`-th step that is taken, over all environments.
    """

    name = "parity"
    instructions = "Say an odd word."
    max_turns = 2

    def __init__(self, fault: str = "", every: int = 1, heldout: int = 2) -> None:
        self.fault = fault
        self.every = every
        self.heldout = heldout
        self.count = itertools.count(1)

    def tasks(self, split: Split) -> Sequence[Task]:
        numbers = range(2) if split == "train" else range(2, 2 + self.heldout)
        return [Task(f"{self.name}/{n}", self.name, f"Find the exit of room {n}.", n, split, f"{self.name}/{n}") for n in numbers]

    def make_env(self) -> "ParityEnv":
        return ParityEnv(self)


class Oddity(Parity):
    """The same game under another name and other rules."""

    name = "oddity"
    instructions = "Say a word of odd length."


class ParityEnv:
    def __init__(self, suite: Parity) -> None:
        self.suite = suite
        self.turns = 0

    def reset(self, task: Task, seed: int) -> tuple[str, dict[str, Any]]:
        self.turns = 0
        return f"at {seed % 15 + 1} {seed // 15 % 15 + 1}", {}

    def step(self, action: str) -> Any:
        self.turns += 1
        won = len(action) % 2 == 1
        result = (f"at {len(action)} {self.turns}", won + len(action) / 100, won, self.turns == 2, {"success": won})
        if not self.suite.fault or next(self.suite.count) % self.suite.every:
            return result
        if self.suite.fault == "raised":
            raise RuntimeError("the level fell apart")
        if self.suite.fault == "hung":
            time.sleep(1.0)
        rewards = {"nan": float("nan"), "huge": 1e308}
        if self.suite.fault in rewards:
            return (result[0], rewards[self.suite.fault], *result[2:])
        return (b"bytes", *result[1:]) if self.suite.fault == "bytes" else (*result[:2], True, False, {})

    def close(self) -> None:
        pass


def mixture_config(directory: Path, oddity: str = "", *overrides: str) -> Config:
    """A tiny run on a mixture of `Parity`, which gets two groups of three, and `Oddity`, whose options are TOML."""
    first = "{suite = 'helpers.runs:Parity', weight = 2}"
    second = f"{{suite = 'helpers.runs:Oddity', options = {{{oddity}}}}}"
    suites = f"{{parity = {first}, oddity = {second}}}"
    options = ("env.suite=mixture", f"env.options={{suites = {suites}}}", "env.groups_per_step=3", "merge.interval=3")
    return tiny_config(directory, *options, *overrides)


def parity_config(directory: Path, *overrides: str) -> Config:
    """A tiny run on `Parity`: no game to wait for, and luck in every group."""
    return tiny_config(directory, "env.suite=helpers.runs:Parity", "env.options={}", "merge.interval=3", *overrides)
