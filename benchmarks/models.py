"""What the benchmarks of engines share: a model with its engine's parts, times of two sides that take turns, and peak memory."""

import ctypes
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Two OpenMP threads spin at barriers: with other work on the machine they are slower than one.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from benchmarks.synthetic import np
from complementary_rl.models.names import resolve
from complementary_rl.report.provenance import current_commit


def load(path: str) -> Any:
    """A float32 causal LM from a folder, or by a name such as `embedded:actor` or `packaged:smollm2`."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    return AutoModelForCausalLM.from_pretrained(resolve(path), dtype=torch.float32).eval()


@dataclass
class Times:
    """Seconds of one side by repeat, on the clock and of the processor (all threads; other load does not add to it)."""

    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def add(self, work: Callable[[], object]) -> None:
        wall, processor = time.perf_counter(), time.process_time()
        work()
        self.wall.append(time.perf_counter() - wall)
        self.processor.append(time.process_time() - processor)


def take_turns(sides: dict[str, Callable[[], object]], repeats: int) -> dict[str, Times]:
    """`repeats` times each side after a warm-up, in turns, so that drifts of the machine hit all alike."""
    times = {name: Times() for name in sides}
    for work in sides.values():
        work()
    for _ in range(repeats):
        for name, work in sides.items():
            times[name].add(work)
    return times


def ratio(slow: list[float], fast: list[float]) -> str:
    return f"{np.median(slow) / np.median(fast):.2f}"


def peak_bytes(work: Callable[[], object]) -> int:
    """How far the process's resident memory rises above what it holds before `work` (Linux)."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    before = _status("VmRSS")
    work()
    return _status("VmHWM") - before


def _status(key: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1]) * 1024


def print_machine() -> None:
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(
        f"commit {current_commit()} · Python {platform.python_version()} · torch {torch.__version__} · {os.cpu_count()} cores · "
        f"load {load} · {torch.get_num_threads()} threads\n"
    )
