"""Rollout time with experience over that without, at 128 to 1,024 parallel simulated environments.

    python benchmarks/rollout_overhead.py

An environment is a coroutine that sleeps for a fixed time per turn, as a model server and a simulator make a rollout wait. With experience,
half of the members of each group of 8 first retrieve (schedule async, counted as in training) from a bank of 20,000 entries under distinct
keys; all 8 share one description. The two arms take turns; the ratio is taken pair by pair.
"""

import argparse
import asyncio
import gc
import tempfile
from pathlib import Path
from time import perf_counter, process_time

from synthetic import GivenEmbedder, filled_bank, manager_of, np, print_machine, print_table, spread, task, unit_vectors

from complementary_rl.experience.manager import ExperienceManager

GROUP = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--environments", type=int, nargs="+", default=[128, 256, 512, 1024])
    parser.add_argument("--entries", type=int, default=20_000)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--turn-seconds", type=float, default=0.5, help="a turn of a 7B model and its environment takes longer")
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print_machine()
    entries = unit_vectors(options.entries, options.dimensions, 0)
    queries = unit_vectors(max(options.environments) * 2 * options.repeats, options.dimensions, 1, near=entries)
    with (
        tempfile.TemporaryDirectory() as folder,
        filled_bank(Path(folder) / "bank.sqlite", GivenEmbedder(entries, queries), options.entries) as bank,
    ):
        manager = manager_of(bank)
        gc.freeze()  # as a training session does
        rows = [compare(manager, environments, options) for environments in options.environments]
        manager.close()
    print_table(["environments", "without s", "with s", "ratio", "first turn later by ms", "processor ms, with − without"], rows)
    print("\nmedian (least–most) of the repeats")


def compare(manager: ExperienceManager, environments: int, options: argparse.Namespace) -> list[str]:
    times: list[tuple[float, float, float, float]] = []
    for repeat in range(options.repeats):
        arms = {}
        for guided in (False, True) if repeat % 2 else (True, False):
            arms[guided] = asyncio.run(rollouts(manager if guided else None, environments, repeat, options))
        (free, _, free_work), (with_it, wait, work) = arms[False], arms[True]
        times.append((free, with_it, wait, work - free_work))
    free, with_it, wait, work = np.array(times).T
    ratio = spread(with_it / free, digits=3)
    return [f"{environments:,}", spread(free, digits=2), spread(with_it, digits=2), ratio, spread(wait, 1e3), spread(work, 1e3)]


async def rollouts(
    manager: ExperienceManager | None, environments: int, step: int, options: argparse.Namespace
) -> tuple[float, float, float]:
    """(seconds until all episodes are done, mean seconds a guided one waited for experience, processor time)."""
    waits: list[float] = []

    async def episode(number: int) -> None:
        if manager is not None and number % GROUP < GROUP // 2:
            asked = perf_counter()
            await manager.retrieve(
                [task(step * environments + number // GROUP)], [step * environments + number], step, training=True
            )
            waits.append(perf_counter() - asked)
        for _ in range(options.turns):
            await asyncio.sleep(options.turn_seconds)

    start, processor = perf_counter(), process_time()
    await asyncio.gather(*(episode(number) for number in range(environments)))
    return perf_counter() - start, float(np.mean(waits)) if waits else 0.0, process_time() - processor


if __name__ == "__main__":
    main()
