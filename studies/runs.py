"""The runs of a study: `crl train`, a process each with one thread; what is finished is kept, under any study that asks for it."""

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from complementary_rl.config import Config
from complementary_rl.config_file import config_hash, dump_config, load_config
from complementary_rl.errors import ConfigError
from complementary_rl.report.summary import FILE
from studies.declaration import Study

POLL_SECONDS = 0.5
_STOP_SECONDS = 30
_CAUSE_LINES = 5


@dataclass(frozen=True)
class Cell:
    """One run of a study. `directory` is shared by all cells of an equal configuration."""

    variant: str
    seed: int
    config: Config
    directory: Path

    @property
    def finished(self) -> bool:
        return (self.directory / FILE).exists()

    @property
    def log(self) -> Path:
        return self.directory.with_suffix(".log")


@dataclass(frozen=True)
class Failure:
    """A run that did not finish, and the end of what it said."""

    cell: Cell
    cause: str


class Cache:
    """Finds the directory of a configuration under `root`.

    Configurations are compared as this version reads them: a setting that came later has its default in an earlier run, so that the run
    still counts; a run under another value, or one that this version cannot read, does not.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._known: dict[str, Path] = {}
        for path in sorted(root.glob("*/config.toml")):
            try:
                self._known[config_hash(load_config(path))] = path.parent
            except ConfigError:
                continue

    def directory(self, config: Config) -> Path:
        """Of the run there is, or of the one to make."""
        key = config_hash(config)
        return self._known.get(key, self.root / key)


def cells(study: Study, variants: Sequence[str], seeds: Sequence[int], root: Path, steps: int | None = None) -> list[Cell]:
    """All variants × seeds, seed by seed, so that an interrupted study has whole seeds. Raises ConfigError as `Study.resolve` does."""
    cache = Cache(root)
    found = []
    for seed, variant in itertools.product(seeds, variants):
        config = study.resolve(variant, seed, steps)
        found.append(Cell(variant, seed, config, cache.directory(config)))
    return found


def run_all(todo: Sequence[Cell], jobs: int, say: Callable[[str], None]) -> list[Failure]:
    """Run what is not finished, `jobs` at a time, going on after a failure; an unfinished run is resumed. Returns the failures."""
    waiting = list({cell.directory: cell for cell in todo if not cell.finished}.values())
    done, total = 0, len(waiting)
    failures: list[Failure] = []
    with _processes() as running:
        while waiting or running:
            while waiting and len(running) < jobs:
                cell = waiting.pop(0)
                running.append((cell, _start(cell)))
            time.sleep(POLL_SECONDS)
            for cell, process in [item for item in running if item[1].poll() is not None]:
                running.remove((cell, process))
                done += 1
                outcome = "finished"
                if process.returncode or not cell.finished:
                    failures.append(Failure(cell, _cause(cell, process.returncode)))
                    outcome = f"FAILED: {failures[-1].cause}"
                say(f"{done}/{total}  {cell.variant}, seed {cell.seed}: {outcome}")
    return failures


@contextmanager
def _processes() -> Iterator[list[tuple[Cell, "subprocess.Popen[bytes]"]]]:
    """A list of running processes; those still in it at the end are stopped."""
    running: list[tuple[Cell, subprocess.Popen[bytes]]] = []
    try:
        yield running
    finally:
        for _, process in running:
            process.terminate()
        for _, process in running:
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _start(cell: Cell) -> "subprocess.Popen[bytes]":
    cell.directory.parent.mkdir(parents=True, exist_ok=True)
    _wanted(cell).write_text(dump_config(cell.config), encoding="utf-8")
    # One thread a process: OpenMP's barriers spin, and more threads than cores are several times slower.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with cell.log.open("ab") as log:
        return subprocess.Popen(_command(cell), stdout=log, stderr=subprocess.STDOUT, env=environment)


def _command(cell: Cell) -> list[str]:
    resume = ["--resume"] if (cell.directory / "run.json").exists() else []
    start = [sys.executable, "-m", "complementary_rl.cli.main", "train", _wanted(cell).as_posix(), "--quiet", *resume]
    return [*start, "--run.dir", cell.directory.as_posix()]


def _wanted(cell: Cell) -> Path:
    """Where the run's process reads its configuration."""
    return cell.directory.with_suffix(".toml")


def _cause(cell: Cell, code: int) -> str:
    lines = cell.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"exit {code}, {cell.log}: {' | '.join(lines[-_CAUSE_LINES:]) or 'it said nothing'}"
