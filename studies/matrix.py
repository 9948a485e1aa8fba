"""Run a matrix of variants and seeds through `crl train`, a process each, and keep what is finished: a second call goes on."""

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from complementary_rl.report.summary import FILE, MethodSummary, load_summary

POLL_SECONDS = 1.0


@dataclass(frozen=True)
class Cell:
    """One run: a variant (a name and its overrides of the shipped config) with a seed."""

    variant: str
    overrides: tuple[str, ...]
    seed: int
    directory: Path


def cells(variants: Mapping[str, Sequence[str]], common: Sequence[str], seeds: Sequence[int], root: Path) -> list[Cell]:
    """All variants × seeds, seed by seed, so that an interrupted study has whole seeds."""
    return [
        Cell(name, (*common, *variants[name]), seed, root / name / f"seed{seed}")
        for seed, name in itertools.product(seeds, variants)
    ]


def run_all(todo: Sequence[Cell], config: str, jobs: int) -> None:
    """Run the cells that are not finished, `jobs` at a time. Raises RuntimeError naming the log of a run that failed."""
    waiting = [cell for cell in todo if not (cell.directory / FILE).exists()]
    running: list[tuple[Cell, subprocess.Popen[bytes]]] = []
    done = len(todo) - len(waiting)
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                cell = waiting.pop(0)
                running.append((cell, _start(cell, config)))
            time.sleep(POLL_SECONDS)
            for cell, process in [item for item in running if item[1].poll() is not None]:
                running.remove((cell, process))
                if process.returncode:
                    raise RuntimeError(f"{cell.variant} seed {cell.seed} failed: see {_log(cell)}")
                done += 1
                print(f"{done}/{len(todo)}  {cell.variant} seed {cell.seed}", flush=True)
    finally:
        for _, process in running:
            process.terminate()


def results(todo: Sequence[Cell]) -> dict[str, dict[int, MethodSummary]]:
    """variant → seed → its summary."""
    found: dict[str, dict[int, MethodSummary]] = {}
    for cell in todo:
        (method,) = load_summary(cell.directory).methods.values()
        found.setdefault(cell.variant, {})[cell.seed] = method
    return found


def _start(cell: Cell, config: str) -> "subprocess.Popen[bytes]":
    _log(cell).parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "complementary_rl.cli.main", "train", config, "--quiet"]
    if (cell.directory / "run.json").exists():
        command.append("--resume")
    command += ["--run.dir", cell.directory.as_posix(), "--run.name", cell.variant, "--run.seed", str(cell.seed)]
    for override in cell.overrides:
        name, _, value = override.partition("=")
        command += [f"--{name}", value]
    with _log(cell).open("ab") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        )


def _log(cell: Cell) -> Path:
    return cell.directory.with_suffix(".log")
