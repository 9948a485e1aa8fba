"""Search throughput beside the local search of Chroma, mem0 and LangMem, on the same vectors.

    python -m venv memory && memory/bin/pip install chromadb mem0ai langmem
    python benchmarks/against_memory_products.py --python memory/bin/python

Embeddings are computed beforehand and equal for all, so that only search is compared: top 16 of 20,000 entries × 384 dimensions. Each
product is asked in the way that suits it best: Chroma in one batched call, mem0's default store (local Qdrant, without what
`Memory.search` does besides) and LangMem's (LangGraph's InMemoryStore) query by query, since they have no other; ours by 1,024 concurrent
callers, counting included. Each runs in a process of its own and they are asked in turns. Who cannot run is left out, with the reason.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

TOP = 16
SECONDS = 10.0
"""A product that needs longer for all queries is asked fewer."""

Search = Callable[[int], int]
"""Asks some queries from the n-th on and returns how many."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="interpreter that has the products")
    parser.add_argument("--products", nargs="+", default=["chroma", "mem0", "langmem"])
    parser.add_argument("--entries", type=int, default=20_000)
    parser.add_argument("--queries", type=int, default=1024)
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.folder)
        return
    from synthetic import print_machine, print_table, spread, unit_vectors

    print_machine()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        entries = unit_vectors(options.entries, options.dimensions, 0)
        np.save(folder / "entries.npy", entries)
        np.save(folder / "queries.npy", unit_vectors(options.queries, options.dimensions, 1, near=entries))
        workers = {product: Worker(product, options.python, folder) for product in options.products}
        workers = {"complementary-rl": Worker("ours", Path(sys.executable), folder)} | workers
        running = {product: worker for product, worker in workers.items() if worker.ready()}
        times: dict[str, list[tuple[float, float]]] = {product: [] for product in running}
        for _ in range(options.repeats):
            for product, worker in running.items():
                times[product].append(worker.ask())
        rates = {product: np.array(pairs) for product, pairs in times.items()}
        ours = rates["complementary-rl"]
        rows = []
        for product, pairs in rates.items():
            wall, processor = pairs.T
            ratio = f"{np.median(wall / ours[:, 0]):.1f}", f"{np.median(processor / ours[:, 1]):.1f}"
            rows.append([product, spread(1 / wall, digits=0), spread(processor, 1e3, 2), *ratio])
        header = ["", "queries/s", "processor ms/query", "times ours, wall", "times ours, processor"]
        print_table(header, rows)
        for product, worker in workers.items():
            if product not in running:
                print(f"{product}: left out, {worker.reason}")
            worker.stop()


class Worker:
    """A product in a process of its own."""

    def __init__(self, product: str, python: Path, folder: Path) -> None:
        command = [str(python), __file__, "--worker", product, "--folder", str(folder)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.reason = ""

    def ready(self) -> bool:
        """Wait until the entries are in."""
        said = self._read()
        self.reason = said.get("failed", "")
        return not self.reason

    def ask(self) -> tuple[float, float]:
        """(seconds, processor seconds) per query."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        said = self._read()
        return said["seconds"], said["processor"]

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _read(self) -> dict:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else {"failed": "its process died"}


def work(product: str, folder: Path) -> None:
    """In the product's process: fill it, then search at every line that comes."""
    out, sys.stdout = sys.stdout, sys.stderr
    try:
        search = PRODUCTS[product](np.load(folder / "entries.npy"), np.load(folder / "queries.npy"), folder / product)
        search(0)
    except Exception as error:  # whatever a product raises where it cannot run is the reason to print
        print(json.dumps({"failed": f"{type(error).__name__}: {error}"[:300]}), file=out, flush=True)
        return
    print("{}", file=out, flush=True)
    total = len(np.load(folder / "queries.npy"))
    for _ in sys.stdin:
        asked, start, processor = 0, perf_counter(), process_time()
        while asked < total and perf_counter() - start < SECONDS:
            asked += search(asked)
        wall, processor = perf_counter() - start, process_time() - processor
        print(json.dumps({"seconds": wall / asked, "processor": processor / asked}), file=out, flush=True)


def ours(entries: np.ndarray, queries: np.ndarray, path: Path) -> Search:
    import asyncio
    import gc

    from synthetic import GivenEmbedder, filled_bank, manager_of, task

    path.mkdir()
    manager = manager_of(filled_bank(path / "bank.sqlite", GivenEmbedder(entries, queries), len(entries)), timeout=600.0)
    gc.freeze()  # as a training session does
    steps = iter(range(0, 10**9, 2))

    async def together(step: int) -> None:
        found = await asyncio.gather(*(manager.retrieve([task(i)], [i], step, training=True) for i in range(len(queries))))
        assert all(sets for [sets] in found)

    def search(first: int) -> int:
        asyncio.run(together(next(steps)))
        return len(queries)

    return search


def chroma(entries: np.ndarray, queries: np.ndarray, path: Path) -> Search:
    import chromadb

    client = chromadb.PersistentClient(str(path), settings=chromadb.Settings(anonymized_telemetry=False))
    collection = client.create_collection("entries", metadata={"hnsw:space": "ip"}, embedding_function=None)
    for start in range(0, len(entries), 2000):
        rows = range(start, min(start + 2000, len(entries)))
        texts = [f"advice number {i}" for i in rows]
        collection.add(ids=[str(i) for i in rows], embeddings=entries[rows.start : rows.stop], documents=texts)

    def search(first: int) -> int:
        collection.query(query_embeddings=queries, n_results=TOP)
        return len(queries)

    return search


def mem0(entries: np.ndarray, queries: np.ndarray, path: Path) -> Search:
    os.environ["MEM0_TELEMETRY"] = "False"
    from mem0.vector_stores.qdrant import Qdrant

    store = Qdrant("entries", entries.shape[1], path=str(path), on_disk=True)
    for start in range(0, len(entries), 1000):
        rows = range(start, min(start + 1000, len(entries)))
        payloads = [{"data": f"advice number {i}", "user_id": "benchmark"} for i in rows]
        store.insert(vectors=entries[rows.start : rows.stop].tolist(), payloads=payloads, ids=list(rows))

    def search(first: int) -> int:
        store.search(query="", vectors=queries[first].tolist(), top_k=TOP, filters={"user_id": "benchmark"})
        return 1

    return search


def langmem(entries: np.ndarray, queries: np.ndarray, path: Path) -> Search:
    import langmem  # noqa: F401, its memory tools search this store
    from langgraph.store.memory import InMemoryStore

    rows = {"entry": entries.tolist(), "query": queries.tolist()}

    def embed(texts: list[str]) -> list[list[float]]:
        return [rows[kind][int(number)] for kind, number in (text.split() for text in texts)]

    store = InMemoryStore(index={"dims": entries.shape[1], "embed": embed, "fields": ["key"]})
    for i in range(len(entries)):
        store.put(("benchmark",), str(i), {"key": f"entry {i}", "text": f"advice number {i}"})

    def search(first: int) -> int:
        store.search(("benchmark",), query=f"query {first}", limit=TOP)
        return 1

    return search


PRODUCTS = {"ours": ours, "chroma": chroma, "mem0": mem0, "langmem": langmem}

if __name__ == "__main__":
    main()
