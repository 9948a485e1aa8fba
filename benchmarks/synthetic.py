"""What the benchmarks share: banks of synthetic entries with vectors given in advance, and printing."""

import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

# Two BLAS threads spin at barriers: with other work on the machine they are ten times slower than one (see docs/bank.md). NumPy reads
# this when it is imported, so the benchmarks take `np` from here.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from complementary_rl.config import BankConfig, Config
from complementary_rl.experience.bank import Bank
from complementary_rl.experience.embedding import Vectors
from complementary_rl.experience.manager import ExperienceManager
from complementary_rl.report.provenance import current_commit
from complementary_rl.types import Task

SCOPE = "benchmark"


class GivenEmbedder:
    """ "entry 7" is row 7 of `entries`, "query 7" is row 7 of `queries`: embedding costs nothing, so that only search is measured."""

    name = "given"

    def __init__(self, entries: Vectors, queries: Vectors) -> None:
        self._rows = {"entry": entries, "query": queries}
        self.dimensions = entries.shape[1]
        self.calls = 0

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.calls += 1
        parts = [text.split() for text in texts]
        return np.stack([self._rows[kind][int(number)] for kind, number in parts])


def unit_vectors(number: int, dimensions: int, seed: int, *, near: Vectors | None = None) -> Vectors:
    """Random unit rows; with `near` each lies at a cosine of about 0.7 to a row of that."""
    random = np.random.default_rng(seed)
    rows = random.standard_normal((number, dimensions), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    if near is not None:
        rows += near[random.integers(len(near), size=number)]
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def filled_bank(path: Path, embedder: GivenEmbedder, entries: int) -> Bank:
    """A bank of `entries` entries, each under a key of its own."""
    bank = Bank.open(path, BankConfig(capacity=10_000_000), embedder, run_id="benchmark")
    add_entries(bank, range(entries))
    return bank


def add_entries(bank: Bank, numbers: Sequence[int], *, step: int = 0) -> None:
    for start in range(0, len(numbers), 1000):
        with bank.transaction():
            for number in numbers[start : start + 1000]:
                bank.add(f"advice number {number}", key_text=f"entry {number}", scope=SCOPE, step=step)


def manager_of(bank: Bank, **retrieval: object) -> ExperienceManager:
    """A manager of the asynchronous schedule that only retrieves."""
    return ExperienceManager(bank, None, Config.model_validate({"retrieval": retrieval}), train_extractor=False)


def task(number: int) -> Task:
    """The task whose description is query `number`."""
    return Task(id=f"t{number}", env="synthetic", description=f"query {number}", seed=number, scope=SCOPE)


def seconds(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def spread(values: Sequence[float], scale: float = 1.0, digits: int = 1) -> str:
    """Median (least–most)."""
    ordered = np.sort(np.array(values) * scale)
    return f"{np.median(ordered):.{digits}f} ({ordered[0]:.{digits}f}–{ordered[-1]:.{digits}f})"


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """As Markdown, so that it can go into the docs."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, ["-" * width for width in widths], *rows]:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")


def print_machine() -> None:
    """Where and on what this was measured; the load tells how far to trust the times."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(
        f"commit {current_commit()} · Python {platform.python_version()} · numpy {np.__version__} · "
        f"{os.cpu_count()} cores · load {load} · BLAS threads {os.environ['OPENBLAS_NUM_THREADS']}\n"
    )
