"""Does a merge hold up the searches of a large bank?

    python -m benchmarks.merge_blocking                    10,000 entries, about five minutes
    python -m benchmarks.merge_blocking --entries 2000

A manager with its worker, as in the schedule `async`; the extractor is a fake that takes a fixed time and merges the first two entries
of each chunk. Searches come at fixed moments and are timed from the moment they were *due*: what the event loop or the bank's lock made
them wait is in it. Turns without and with a merge alternate. A merge of mode `clusters` begins from nothing once ("first": every entry is
embedded and searched for) and then only takes note of what changed.

On a machine with other work a search also waits for a core. Therefore searches are also given in processor time of the whole process, from
call to result: the merge's thread is in it, other programs are not. The lock is watched from inside: how long the merge's thread and
transactions held it, by the clock and in processor time of the holder.
"""

import argparse
import asyncio
import os
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, process_time, thread_time
from typing import Any, cast

import numpy as np
from rich.console import Console
from rich.table import Table

from complementary_rl.config import BankConfig, Config
from complementary_rl.experience.bank import Bank
from complementary_rl.experience.embedding import HashingEmbedder
from complementary_rl.experience.extractor import Extractor, Merged
from complementary_rl.experience.manager import ExperienceManager
from complementary_rl.experience.operations import Parsed
from complementary_rl.seeds import rng
from complementary_rl.types import Entry, Generation, Operation, Task

_SCOPE = "rooms"
_HEADS = ("am", "cri", "sil", "old", "gre", "vel", "nor", "tas")
_WORDS = [head + tail for head in _HEADS for tail in ("ber", "mson", "ver", "hall", "mill", "vault")]
_TURN = 2.0
"""Seconds of a turn without a merge."""


@dataclass
class Seen:
    """Seconds: of searches, and of the lock as others held it, both (clock, processor)."""

    searches: list[tuple[float, float]] = field(default_factory=list)
    holds: list[tuple[float, float]] = field(default_factory=list)
    merges: list[float] = field(default_factory=list)


class FakeExtractor:
    """Takes `latency` seconds per call and merges the first two entries of each chunk."""

    def __init__(self, latency: float) -> None:
        self._latency = latency

    async def merge(self, chunks: Sequence[Sequence[Entry]], ids: Sequence[str]) -> list[Merged]:
        await asyncio.sleep(self._latency)
        return [
            Merged(
                tuple(chunk),
                Generation(name, "extractor", 0, tuple(range(500)), tuple(range(100)), (-0.5,) * 100, "stop", 1.0),
                Parsed((Operation("merge", f"{chunk[0].text} and so on", (chunk[0].id, chunk[1].id)),)),
            )
            for chunk, name in zip(chunks, ids, strict=True)
        ]


class WatchedLock:
    """The bank's lock; notes every hold that is not a search's."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._depth = 0
        self._since = (0.0, 0.0)
        self.searching = False
        self.seen: Seen | None = None

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1
        if self._depth == 1:
            self._since = (perf_counter(), thread_time())

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        searching = self.searching and threading.current_thread() is threading.main_thread()
        if not self._depth and self.seen is not None and not searching:
            self.seen.holds.append((perf_counter() - self._since[0], thread_time() - self._since[1]))
        self._lock.release()


def fill(bank: Bank, entries: int, per_key: int) -> None:
    """Entries of which every second one is much like the one before it."""
    random = rng("merge-blocking")
    for start in range(0, entries, 500):
        with bank.transaction():
            for number in range(start, min(start + 500, entries)):
                if number % 2 == 0:
                    words = " ".join(random.choice(_WORDS, size=12))
                bank.add(f"{words} {number}", key_text=_key(number // per_key), scope=_SCOPE, step=0)


def _key(number: int) -> str:
    return f"Find the exit of the {_WORDS[number % len(_WORDS)]} {_WORDS[number // len(_WORDS) % len(_WORDS)]} {number}."


async def measure(bank: Bank, options: argparse.Namespace, per_key: int) -> dict[str, Seen]:
    """Turns without and with a merge, of either mode."""
    lock = WatchedLock(bank._state.lock)
    bank._state.lock = cast(Any, lock)
    found: dict[str, Seen] = {}
    managers = {mode: _manager(bank, options, mode) for mode in ("chunks", "clusters")}
    for manager in managers.values():
        manager.start()
    step = 0
    for turn in range(options.turns + 1):
        for mode, manager in managers.items():
            first = ", first" if mode == "clusters" and turn == 0 else ""
            for name, merging in (("none", False), (mode + first, True)):
                step += 1
                lock.seen = seen = found.setdefault(name, Seen())
                await _turn(manager, lock, seen, step, merging, _key(0), per_key, options)
    for manager in managers.values():
        await manager.stop(10.0)
    return found


def _manager(bank: Bank, options: argparse.Namespace, mode: str) -> ExperienceManager:
    merge = {"mode": mode, "max_chunks": options.chunks, "similarity": 0.8}
    config = Config.model_validate({"merge": merge, "retrieval": {"entries_per_group": 2}})
    return ExperienceManager(bank, cast(Extractor, FakeExtractor(options.latency)), config, train_extractor=False)


async def _turn(
    manager: ExperienceManager,
    lock: WatchedLock,
    seen: Seen,
    step: int,
    merging: bool,
    key: str,
    per_key: int,
    options: argparse.Namespace,
) -> None:
    start = due = perf_counter()
    if merging:
        await manager.merge(step)
    number = 0
    while True:
        due = max(due + options.every, perf_counter() - 10 * options.every)  # after a long stop, not all that was missed
        await asyncio.sleep(max(0.0, due - perf_counter()))
        number += 1
        where = _key((number * 7919) % (options.entries // per_key))
        lock.searching, used = True, process_time()
        await manager.retrieve([Task(f"t{number}", "rooms", where, 0, _SCOPE)], [number], step, training=False)
        lock.searching = False
        seen.searches.append((perf_counter() - due, process_time() - used))
        if manager.state_dict()["merge_due"] is None and (merging or perf_counter() - start > _TURN):
            break
    if merging:
        seen.merges.append(perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--per-key", type=int, nargs="+", default=[1, 10], help="entries filed under one key")
    parser.add_argument("--turns", type=int, default=5, help="merges of each mode, after the first")
    parser.add_argument("--chunks", type=int, default=8, help="merge.max_chunks")
    parser.add_argument("--latency", type=float, default=0.5, help="seconds the extractor takes per call")
    parser.add_argument("--every", type=float, default=0.005, help="seconds between two searches")
    options = parser.parse_args()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    table = Table(title=f"{options.entries:,} entries, times in ms; {os.cpu_count()} cores, load {load}")
    for column in ("per key", "merge", "merges", "s each", "searches"):
        table.add_column(column)
    for column in ("clock: p50", "p99", "max", "processor: p50", "p99", "max", "lock held: p99", "max", "processor: max"):
        table.add_column(column, justify="right")
    for per_key in options.per_key:
        with tempfile.TemporaryDirectory() as folder:
            config = BankConfig(capacity=10 * options.entries)
            with Bank.open(Path(folder) / "bank.sqlite", config, HashingEmbedder(), run_id="benchmark") as bank:
                fill(bank, options.entries, per_key)
                for name, seen in asyncio.run(measure(bank, options, per_key)).items():
                    table.add_row(str(per_key), name, *_cells(seen))
    Console(width=160).print(table)


def _cells(seen: Seen) -> list[str]:
    cells = [str(len(seen.merges)), f"{np.mean(seen.merges):.1f}" if seen.merges else "–", str(len(seen.searches))]
    for seconds in np.array(seen.searches).T * 1e3:
        cells += [f"{value:.1f}" for value in (*np.percentile(seconds, [50, 99]), seconds.max())]
    if not seen.holds:
        return [*cells, "–", "–", "–"]
    clock, processor = np.array(seen.holds).T * 1e3
    return [*cells, f"{np.percentile(clock, 99):.1f}", f"{clock.max():.1f}", f"{processor.max():.1f}"]


if __name__ == "__main__":
    main()
