"""Does an approximate index pay above 100,000 keys? Exact search beside faiss and usearch: recall@16, time, build time.

    pip install faiss-cpu usearch        # into a venv of its own; numpy is all else it needs
    PYTHONPATH=src python benchmarks/large_banks.py

Random unit vectors are the worst case (no structure to exploit), clustered ones are what descriptions of related tasks look like. Every
query lies at a cosine of about 0.7 to some entry. Searches take turns over the repeats.
"""

import argparse
import os
from collections.abc import Callable
from time import perf_counter

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "2")

import numpy as np

from complementary_rl.experience.embedding import Vectors
from complementary_rl.experience.index import VectorIndex

TOP = 16
Search = Callable[[Vectors], np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 300_000])
    parser.add_argument("--graph-limit", type=int, default=100_000, help="largest size for which HNSW graphs are built (minutes)")
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores · load {os.getloadavg()[0]:.1f} · exact search on 1 BLAS thread, the others on 2 threads\n")
    print(
        "| vectors | data | index | build s | 1 query ms | 64 queries ms | recall@16 |\n| --- | --- | --- | --- | --- | --- | --- |"
    )
    for size in options.sizes:
        for data in ("random", "clustered"):
            compare(size, data, options)


def compare(size: int, data: str, options: argparse.Namespace) -> None:
    random = np.random.default_rng(size)
    entries = unit(random.standard_normal((size, options.dimensions), dtype=np.float32))
    if data == "clustered":
        centres = unit(random.standard_normal((max(100, size // 200), options.dimensions), dtype=np.float32))
        entries = unit(entries + centres[random.integers(len(centres), size=size)])
    noise = unit(random.standard_normal((64, options.dimensions), dtype=np.float32))
    queries = unit(noise + entries[random.integers(size, size=64)])
    searches: dict[str, tuple[float, Search]] = {"exact (ours)": timed(lambda: exact(entries))}
    searches |= approximate(entries, graphs=size <= options.graph_limit)
    truth = searches["exact (ours)"][1](queries)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in searches}
    for _ in range(options.repeats):
        for name, (_, search) in searches.items():
            times[name].append((seconds(search, queries[:1]), seconds(search, queries)))
    for name, (build, search) in searches.items():
        recall = np.mean([len(set(a) & set(b)) / TOP for a, b in zip(truth.tolist(), search(queries).tolist(), strict=True)])
        one, many = np.median(np.array(times[name]), axis=0) * 1e3
        print(f"| {size:,} | {data} | {name} | {build:.1f} | {one:.2f} | {many:.1f} | {recall:.3f} |", flush=True)


def exact(entries: Vectors) -> Search:
    index = VectorIndex(entries.shape[1])
    for number, vector in enumerate(entries):
        index.add(number, vector)
    return lambda queries: np.array([found.ids for found in index.search(queries, TOP)])


def approximate(entries: Vectors, *, graphs: bool) -> dict[str, tuple[float, Search]]:
    import faiss
    from usearch.index import Index

    size, dimensions = entries.shape
    lists = int(4 * size**0.5) // 2
    searches: dict[str, tuple[float, Search]] = {}

    def inverted() -> object:
        index = faiss.index_factory(dimensions, f"IVF{lists},Flat", faiss.METRIC_INNER_PRODUCT)
        index.train(entries[:: max(1, size // (40 * lists))])
        index.add(entries)
        return index

    build, ivf = timed(inverted)
    for probes in (lists // 64, lists // 16, lists // 4):
        searches[f"faiss IVF{lists}, {probes} probes"] = (build, lambda queries, p=probes: probe(ivf, queries, p))
    build, scalar = timed(lambda: filled(faiss.index_factory(dimensions, "SQ8", faiss.METRIC_INNER_PRODUCT), entries))
    searches["faiss SQ8, all of it"] = (build, lambda queries: scalar.search(queries, TOP)[1])
    if graphs:
        build, graph = timed(lambda: filled(faiss.index_factory(dimensions, "HNSW32,Flat", faiss.METRIC_INNER_PRODUCT), entries))
        for breadth in (128, 512):
            searches[f"faiss HNSW32, breadth {breadth}"] = (build, lambda queries, b=breadth: wander(graph, queries, b))
        index = Index(ndim=dimensions, metric="ip", dtype="f16", connectivity=32, expansion_search=512)
        build, _ = timed(lambda: index.add(np.arange(size), entries, threads=2))
        searches["usearch f16, breadth 512"] = (
            build,
            lambda queries: index.search(queries, TOP, threads=2).keys.reshape(len(queries), -1),
        )
    return searches


def filled(index: object, entries: Vectors) -> object:
    index.train(entries)  # type: ignore[attr-defined]
    index.add(entries)  # type: ignore[attr-defined]
    return index


def probe(index: object, queries: Vectors, probes: int) -> np.ndarray:
    index.nprobe = probes  # type: ignore[attr-defined]
    return index.search(queries, TOP)[1]  # type: ignore[attr-defined]


def wander(index: object, queries: Vectors, breadth: int) -> np.ndarray:
    index.hnsw.efSearch = breadth  # type: ignore[attr-defined]
    return index.search(queries, TOP)[1]  # type: ignore[attr-defined]


def unit(rows: Vectors) -> Vectors:
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def timed(build):  # type: ignore[no-untyped-def]
    start = perf_counter()
    built = build()
    return perf_counter() - start, built


def seconds(search: Search, queries: Vectors) -> float:
    start = perf_counter()
    search(queries)
    return perf_counter() - start


if __name__ == "__main__":
    main()
