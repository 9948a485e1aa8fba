"""Latency of 1,024 concurrent queries, beside the bare matrix product of the same shape.

    python benchmarks/search_latency.py

Every query is a caller of its own (`ExperienceManager.retrieve`, schedule async, counted as in training). Latency runs from the moment
all are released. The two workloads and the bare products take turns, so that other load on the machine hits all alike. Processor time (of
all threads) is printed beside: other load does not add to it, so on two free cores the wall time lies between half of it and all of it.
"""

import argparse
import asyncio
import gc
import tempfile
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter, process_time

from synthetic import (
    GivenEmbedder,
    filled_bank,
    manager_of,
    np,
    print_machine,
    print_table,
    seconds,
    spread,
    task,
    unit_vectors,
)

from complementary_rl.experience.embedding import HashingEmbedder, Vectors
from complementary_rl.experience.manager import ExperienceManager


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[1_000, 20_000, 100_000], help="entries, each under a key of its own"
    )
    parser.add_argument("--queries", type=int, default=1024)
    parser.add_argument("--groups", type=int, default=128, help="different texts of the grouped workload")
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--searches", type=int, default=2, help="W, parallel searches")
    parser.add_argument("--score", choices=["paper", "value"], default="paper")
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    print_machine()
    rows, memory = [], []
    for size in options.sizes:
        latencies, used = measure(size, options)
        rows += table_rows(size, latencies, options.queries, options.groups)
        memory.append([f"{size:,}", f"{used / size:,.0f} B", f"{options.dimensions * 4:,} B"])
    header = ["entries", "queries", "p50 ms", "p99 ms", "bare product ms", "p99 / bare", "processor ms", "bare", "ratio"]
    print_table(header, rows)
    print("\nmedian (least–most) of the repeats; ratios: median over the pairs\n")
    print_table(["entries", "memory per entry", "of it the vector"], memory)
    print(f"\nembedding apart: {embedding_time(options.queries, options.dimensions)}")


def measure(size: int, options: argparse.Namespace) -> tuple[dict[str, list[tuple[float, ...]]], int]:
    """(p50, p99, bare product, processor time, that of the bare product) in seconds by workload and repeat, and the bytes that the
    entries take in memory."""
    entries = unit_vectors(size, options.dimensions, 0)
    queries = unit_vectors(options.queries, options.dimensions, 1, near=entries)
    workloads = {
        "groups": [i * options.groups // options.queries for i in range(options.queries)],
        "distinct": list(range(options.queries)),
    }
    results: dict[str, list[tuple[float, ...]]] = {name: [] for name in workloads}
    with tempfile.TemporaryDirectory() as folder:
        with filled_bank(Path(folder) / "bank.sqlite", GivenEmbedder(entries, queries), size):
            pass  # closed and opened again below, as a run does
        tracemalloc.start()
        with filled_bank(Path(folder) / "bank.sqlite", GivenEmbedder(entries, queries), 0) as bank:
            used = tracemalloc.get_traced_memory()[0]
            tracemalloc.stop()
            manager = manager_of(bank, score=options.score, searches=options.searches, timeout=600.0)
            gc.freeze()  # as a training session does
            for repeat in range(options.repeats + 1):
                for name, numbers in workloads.items():
                    texts = queries[sorted(set(numbers))]
                    bare, bare_processor = bare_product(texts, entries)
                    processor = process_time()
                    # A task comes round every few steps in training, so none was asked for in the step before.
                    latency = asyncio.run(released_together(manager, numbers, 2 * repeat))
                    processor = process_time() - processor
                    if repeat:  # the first warms up
                        p50, p99 = np.percentile(latency, [50, 99])
                        results[name].append((p50, p99, bare, processor, bare_processor))
            manager.close()
            gc.unfreeze()
    return results, used


async def released_together(manager: ExperienceManager, numbers: list[int], step: int) -> list[float]:
    """Seconds from the common start to each caller's answer."""
    start = perf_counter()

    async def one(place: int, number: int) -> float:
        [sets] = await manager.retrieve([task(number)], [1_000_000 * step + place], step, training=True)
        assert sets, "late"
        return perf_counter() - start

    return await asyncio.gather(*(one(place, number) for place, number in enumerate(numbers)))


def bare_product(queries: Vectors, entries: Vectors) -> tuple[float, float]:
    """Seconds of queries · entriesᵀ, as one product or as two halves in two threads (what is faster), and its processor time."""
    processor = process_time()
    whole = seconds(lambda: queries @ entries.T)
    processor = process_time() - processor
    return min(whole, seconds(lambda: split_product(queries, entries))), processor


def split_product(queries: Vectors, entries: Vectors) -> None:
    """The product with half of the queries in each of two threads."""
    half = len(queries) // 2
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda part: part @ entries.T, [queries[:half], queries[half:]]))


def table_rows(size: int, latencies: dict[str, list[tuple[float, ...]]], queries: int, groups: int) -> list[list[str]]:
    rows = []
    for name, repeats in latencies.items():
        p50, p99, bare, processor, bare_processor = (np.array(column) * 1e3 for column in zip(*repeats, strict=True))
        what = f"{queries} in {groups} groups" if name == "groups" else f"{queries} distinct"
        wall = [spread(p50), spread(p99), spread(bare), f"{np.median(p99 / bare):.2f}"]
        work = [spread(processor), spread(bare_processor), f"{np.median(processor / bare_processor):.2f}"]
        rows.append([f"{size:,}", what, *wall, *work])
    return rows


def embedding_time(texts: int, dimensions: int) -> str:
    described = [f"Find the exit of the {i} Gallery in the {i % 7} wing." for i in range(texts)]
    times = [seconds(lambda: HashingEmbedder(dimensions).embed(described)) for _ in range(5)]
    return f"`hashing`, {texts} different short texts: {spread(times, 1e3)} ms"


if __name__ == "__main__":
    main()
