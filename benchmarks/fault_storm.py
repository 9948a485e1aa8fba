"""A training run of 3,072 episodes whose environments crash, hang and answer nonsense: is anything lost, leaked, or ever larger?

    python -m benchmarks.fault_storm

The method is `complementary` with the embedded models, in the loop that always trains. Every environment plays a trivial game with a
process of its own. Which episode meets which fault is drawn by `--seed`; half of the hangs end after three time limits, the others with the
run. Groups and episodes are counted in what the run wrote (`metrics.jsonl` and `episodes/`) and held against what was planned and injected.
Exits with 1 unless every planned episode is told or lost with its cause, no process or thread is left, and memory stays flat.
"""

import argparse
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

from benchmarks.storm_suite import FAULTS, MADE
from benchmarks.synthetic import np, print_machine, print_table
from complementary_rl.config_file import load_config
from complementary_rl.configs import find_config
from complementary_rl.report.rundir import RunData, read_episodes, read_run
from complementary_rl.training.run import train

GROUPS, MEMBERS = 8, 8
SETTLE = 10.0
"""Seconds that what was left behind is given to end, after the run."""
_LOST = re.compile(r"episode (\S+) lost, environment (\w+):")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--steps", type=int, default=48, help=f"of {GROUPS * MEMBERS} episodes each; memory grows once, in the first quarter"
    )
    parser.add_argument("--share", type=float, default=0.1, help="of the episodes that meet a fault")
    parser.add_argument("--timeout", type=float, default=0.3, help="seconds that a step of an environment may take")
    parser.add_argument("--growth", type=float, default=0.02, help="most that the last quarter may need above the second")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print_machine()
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(not storm(Path(folder) / "run", options.steps, options.share, options.timeout, options.growth, options.seed))


def storm(directory: Path, steps: int, share: float, timeout: float, growth: float, seed: int) -> bool:
    """Run it and print the tables; whether all is as it should be."""
    memory: list[float] = []

    def watch(record: dict[str, Any]) -> None:
        if record["kind"] == "step":
            memory.append(psutil.Process().memory_info().rss / 2**20)

    before, start = alive(), time.monotonic()
    options = {"episodes": steps * GROUPS * MEMBERS, "share": share, "slow": 3 * timeout, "seed": seed}
    train(
        load_config(
            find_config("quickstart"),
            [
                f"run.dir={str(directory)!r}",
                f"run.seed={seed}",
                f"run.steps={steps}",
                "env.suite=benchmarks.storm_suite:Storm",
                f"env.options={{{', '.join(f'{name} = {value}' for name, value in options.items())}}}",
                f"env.groups_per_step={GROUPS}",
                f"env.group_size={MEMBERS}",
                f"env.step_timeout={timeout}",
                "env.fault_budget=1000000",
                f"log.episodes_per_step={GROUPS * MEMBERS}",
                "eval.episodes=8",
            ],
        ),
        on_record=watch,
    )
    seconds, held = time.monotonic() - start, alive()
    MADE[-1].over.set()
    deadline = time.monotonic() + SETTLE
    while alive() != before and time.monotonic() < deadline:
        time.sleep(0.05)
    complete = balance(read_run(directory), steps, MADE[-1].injected)
    quarters = [float(np.median(memory[len(memory) * i // 4 : len(memory) * (i + 1) // 4])) for i in range(4)]
    print_table(
        ["", "before", "at the end, some hang", "after"],
        [[what, *map(str, counts)] for what, *counts in zip(("processes", "threads"), before, held, alive(), strict=True)],
    )
    print(f"\nmemory by quarters of the run: {', '.join(f'{quarter:.0f}' for quarter in quarters)} MiB; {seconds:.0f} s")
    return complete and alive() == before and quarters[3] <= quarters[1] * (1 + growth)


def alive() -> tuple[int, int]:
    """Child processes, and threads that belong to environments."""
    threads = sum(thread.name == "crl-environment" for thread in threading.enumerate())
    return len(psutil.Process().children(recursive=True)), threads


def balance(run: RunData, steps: int, injected: Counter[str]) -> bool:
    """Print what became of the planned groups and of the injected faults; whether it adds up."""
    planned = {f"s{step}-g{group}-m{member}" for step in range(steps) for group in range(GROUPS) for member in range(MEMBERS)}
    told = [episode["id"] for step in range(steps) for episode in read_episodes(run.directory / "episodes" / f"step_{step}.jsonl")]
    lost = {match[1]: match[2] for event in run.events if (match := _LOST.search(event))}
    sizes = Counter(name.rpartition("-")[0] for name in told)
    groups = Counter("whole" if size == MEMBERS else "short" for size in sizes.values())
    submitted = steps * GROUPS
    none_left = submitted - sum(groups.values())
    print_table(
        ["", "planned", "told", "lost with a cause", "unaccounted for"],
        [
            ["episodes", str(len(planned)), str(len(told)), str(len(lost)), str(len(planned - set(told) - set(lost)))],
            ["groups", str(submitted), f"{groups['whole']} whole, {groups['short']} short of members", str(none_left), "0"],
        ],
    )
    found, expected = Counter(lost.values()), Counter[str]()
    for fault, count in injected.items():
        expected[FAULTS[fault]] += count
    print_table(["injected", "episodes", "to be told as"], [[fault, str(injected[fault]), kind] for fault, kind in FAULTS.items()])
    print_table(["told", "episodes", "injected"], [[kind, str(found[kind]), str(expected[kind])] for kind in {**expected, **found}])
    once = len(told) == len(set(told)) and not set(told) & set(lost)
    return once and set(told) | set(lost) == planned and found == expected


if __name__ == "__main__":
    main()
