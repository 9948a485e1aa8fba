"""Adding and updating while searches run, and how their cost grows with the bank.

    python benchmarks/bank_writes.py

Writes are transactions of their own, as an extractor's batch of one would be, made in the event loop while a searcher keeps both search
threads busy. With and without searches take turns. Processor time of the writing thread is printed beside wall time: it does not grow with
other load on the machine.
"""

import argparse
import asyncio
import gc
import tempfile
from pathlib import Path
from time import perf_counter, thread_time

from synthetic import SCOPE, GivenEmbedder, add_entries, filled_bank, manager_of, np, print_machine, print_table, task, unit_vectors

from complementary_rl.experience.bank import Bank
from complementary_rl.experience.manager import ExperienceManager


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--writes", type=int, default=200, help="adds and as many updates, in each of the turns")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--dimensions", type=int, default=384)
    options = parser.parse_args()
    print_machine()
    most = max(options.sizes) + options.writes * options.turns * 2 * len(options.sizes)
    entries = unit_vectors(most, options.dimensions, 0)
    queries = unit_vectors(4096, options.dimensions, 1, near=entries)
    rows, filled = [], 0
    with (
        tempfile.TemporaryDirectory() as folder,
        filled_bank(Path(folder) / "bank.sqlite", GivenEmbedder(entries, queries), 0) as bank,
    ):
        manager = manager_of(bank, timeout=600.0)
        gc.freeze()
        for size in options.sizes:
            add_entries(bank, range(filled, size))
            filled = max(filled, size)
            times: dict[bool, list[np.ndarray]] = {False: [], True: []}
            for turn in range(2 * options.turns):
                searching = bool(turn % 2)
                times[searching].append(asyncio.run(write(bank, manager, filled, options.writes, searching)))
                filled += options.writes
            rows += [row(size, searching, np.concatenate(columns)) for searching, columns in times.items()]
        manager.close()
    header = [
        "entries",
        "searches",
        "add µs p50",
        "add p99",
        "of it processor",
        "update µs p50",
        "update p99",
        "of it processor",
        "writes/s",
    ]
    print_table(header, rows)


async def write(bank: Bank, manager: ExperienceManager, first: int, writes: int, searching: bool) -> np.ndarray:
    """[writes, 4]: seconds and processor seconds of an add, and of an update of what was added."""
    running = asyncio.create_task(search_on(manager)) if searching else None
    times = []
    for number in range(first, first + writes):
        await asyncio.sleep(0)
        start, processor = perf_counter(), thread_time()
        added = bank.add(f"advice number {number}", key_text=f"entry {number}", scope=SCOPE, step=0)
        middle, middle_processor = perf_counter(), thread_time()
        assert added.entry_id is not None
        bank.update(added.entry_id, f"better advice {number}", key_text=f"entry {number}", scope=SCOPE, step=0)
        times.append((middle - start, middle_processor - processor, perf_counter() - middle, thread_time() - middle_processor))
    if running is not None:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return np.array(times)


async def search_on(manager: ExperienceManager) -> None:
    """Keep 64 callers asking."""

    async def caller(number: int) -> None:
        while True:
            await manager.retrieve([task(number % 4096)], [number], 0, training=True)
            number += 64

    await asyncio.gather(*(caller(number) for number in range(64)))


def row(size: int, searching: bool, times: np.ndarray) -> list[str]:
    p50, p99 = np.percentile(times * 1e6, [50, 99], axis=0)
    per_second = 2 * len(times) / times[:, [0, 2]].sum()
    cells = [f"{p50[0]:.0f}", f"{p99[0]:.0f}", f"{p50[1]:.0f}", f"{p50[2]:.0f}", f"{p99[2]:.0f}", f"{p50[3]:.0f}"]
    return [f"{size:,}", "on" if searching else "off", *cells, f"{per_second:,.0f}"]


if __name__ == "__main__":
    main()
