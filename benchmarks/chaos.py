"""Processes of the Ray engine that are killed and hung at random moments: how long until the step is done, and is the result the same?

    python -m benchmarks.chaos

A step is sample, update, publish, and every third time save. In each struck step one process, chosen at random from a role, gets SIGKILL
(dead) or SIGSTOP (hung: it holds its connections and answers nothing) while it works for one of the phases. Beside it an undisturbed local
engine makes the same steps: tokens and weights are compared at the end.
"""

import argparse
import asyncio
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from benchmarks.ray_overhead import requests, train_step
from benchmarks.synthetic import print_machine, print_table, spread
from complementary_rl.config import ClusterConfig, ModelConfig, WorkersConfig
from complementary_rl.engines import make_engine
from complementary_rl.engines.local.checkpoint import read_tensors
from complementary_rl.engines.protocol import Engine

ROLES = {"trainer rank": "ray::TrainerRank", "sampler": "ray::SamplerWorker"}
"""Role → how its processes are called."""
FAULTS = {"killed": signal.SIGKILL, "hung": signal.SIGSTOP}
ROWS, PROMPT, NEW_TOKENS = 8, 40, 8
SAVE_EVERY = 3


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault and the seconds that its step took."""

    role: str
    fault: str
    seconds: float


def processes(role: str) -> list[psutil.Process]:
    """Those of a role that this process's Ray has started and that are not stopped."""
    ours = psutil.Process().children(recursive=True)
    return [p for p in ours if p.status() != psutil.STATUS_STOPPED and ROLES[role] in " ".join(p.cmdline())]


@contextmanager
def striking(role: str, fault: str, delay: float, chosen: random.Random) -> Iterator[None]:
    """Strike a process of `role` once `delay` seconds have passed inside the block."""

    def strike() -> None:
        victim = chosen.choice(sorted(processes(role), key=lambda process: process.pid))
        os.kill(victim.pid, FAULTS[fault])

    timer = threading.Timer(delay, strike)
    timer.start()
    try:
        yield
    finally:
        timer.join()


def step_of(engine: Engine, number: int, folder: Path) -> tuple[list[tuple[int, ...]], float]:
    """Make one step; the tokens it sampled and the seconds it took."""
    start = time.perf_counter()
    step = asyncio.run(train_step(engine, requests(number, ROWS, PROMPT), NEW_TOKENS))
    if number % SAVE_EVERY == 0:
        engine.save(folder / engine.name)
    return list(step.tokens), time.perf_counter() - start


def run(
    engine: Engine, twin: Engine, rounds: int, folder: Path, on_strike: Callable[[Strike], None], *, seed: int = 0
) -> tuple[float, float]:
    """Strike each role in each way `rounds` times, with a quiet step before each. Returns the median seconds of quiet steps, and how far
    weights are from the twin's at most. Raises AssertionError where other tokens were sampled."""
    chosen = random.Random(seed)
    plan = [(role, fault) for _ in range(rounds) for role in ROLES for fault in FAULTS]
    quiet: list[float] = []
    for index, (role, fault) in enumerate(plan):
        tokens, seconds = step_of(engine, 2 * index, folder / "ray")
        quiet.append(seconds)
        assert tokens == step_of(twin, 2 * index, folder / "local")[0]
        with striking(role, fault, chosen.uniform(0.0, min(quiet)), chosen):
            tokens, seconds = step_of(engine, 2 * index + 1, folder / "ray")
        assert tokens == step_of(twin, 2 * index + 1, folder / "local")[0]
        on_strike(Strike(role, fault, seconds))
    # What was struck behind its last call shows here.
    for side, made in (("ray", engine), ("local", twin)):
        step_of(made, 2 * len(plan), folder / side)
        made.save(folder / side / "end")
    ends = [read_tensors(folder / side / "end", "weights") for side in ("ray", "local")]
    return sorted(quiet)[len(quiet) // 2], max(float((ends[0][name] - ends[1][name]).abs().max()) for name in ends[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="embedded:actor")
    parser.add_argument("--rounds", type=int, default=3, help="strikes of each kind on each role")
    parser.add_argument("--heartbeat", type=float, default=10.0, help="cluster.heartbeat")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print_machine()
    cluster = ClusterConfig(
        actor=WorkersConfig(train=2, sample=2), heartbeat=options.heartbeat, fault_budget=8 * options.rounds, snapshot_interval=2
    )
    strikes: list[Strike] = []
    engine = make_engine("actor", ModelConfig(path=options.model), cluster=cluster)
    twin = make_engine("actor", ModelConfig(path=options.model))
    with tempfile.TemporaryDirectory() as folder:
        quiet, apart = run(engine, twin, options.rounds, Path(folder), strikes.append, seed=options.seed)
    told = engine.take_events()
    for made in (engine, twin):
        made.close()
    rows = []
    for role in ROLES:
        for fault in FAULTS:
            seconds = [s.seconds for s in strikes if (s.role, s.fault) == (role, fault)]
            rows.append([role, fault, str(len(seconds)), spread(seconds)])
    print_table(["role", "fault", "strikes", "seconds of the struck step"], rows)
    print(f"\nmedian (least–most); a quiet step takes {quiet:.2f} s. {len(told)} replacements, of which the engine tells:")
    for line in told:
        print(f"- {line}")
    print(f"\ntokens as without faults in every step; weights within {apart:.1e} of the undisturbed local engine's")


if __name__ == "__main__":
    main()
