"""Kill −9 at random moments of mixed load: is everything acknowledged still there, whole, and does the bank go on?

    python -m benchmarks.bank_durability              200 points, about ten minutes
    python -m benchmarks.bank_durability --points 20

At each point a process works on a bank and acknowledges every operation; it is killed at a random moment, and what it left is checked:
every acknowledged fact, SQLite's integrity check, transactions whole, log rebuilt == live == index, and that the next process goes on.
Points differ in what is under way: operations, checkpoints, imports, and operations whose files are copied as a *power loss* might
leave them (the part of the write-ahead log that was never synced is cut off at a random place and followed by zeros).
Moments and operations come from the seed and the number of the point; the moment itself is a time, so runs are alike, not equal.
"""

import argparse
import json
import os
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.bank_load import ROLLOUTS, Fact, open_bank
from complementary_rl.errors import UserError
from complementary_rl.experience.bank import Bank
from complementary_rl.seeds import rng

MODES = ("operations",) * 6 + ("checkpoint",) * 2 + ("import", "power loss")
"""What is under way at points 0, 1, 2, …, over and over."""

_POINTS_PER_BANK = 10
_LONGEST_WAIT = 0.5
_START_TIMEOUT = 60.0
_CUTS = 4
"""Power losses tried per copy."""


@dataclass
class Tally:
    """What was found at the points of one mode. `lost`: acknowledged facts that are not there. `power_losses`: how many acknowledged
    operations each simulated one cost."""

    points: int = 0
    acknowledged: int = 0
    lost: int = 0
    unacknowledged: int = 0
    power_losses: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def run(points: int, seed: int, folder: Path, modes: Sequence[str] = MODES) -> dict[str, Tally]:
    """Kill at `points` moments, several banks one after the other in `folder`; what was found, by mode."""
    tallies = {mode: Tally() for mode in dict.fromkeys(modes)}
    for first in range(0, points, _POINTS_PER_BANK):
        home = folder / f"bank-{first}"
        home.mkdir()
        facts: list[Fact] = []
        for point in range(first, min(points, first + _POINTS_PER_BANK)):
            tally = tallies[modes[point % len(modes)]]
            if not _point(home / "bank.sqlite", modes[point % len(modes)], seed, point, facts, tally):
                break  # the bank is damaged: the points it still had are missing in the table
        else:
            lost, problems = check(home / "bank.sqlite", facts)  # of all lives: what one left, a later one might have lost
            tally.lost += lost
            tally.problems += problems
        shutil.rmtree(home)
    return tallies


def _point(path: Path, mode: str, seed: int, point: int, facts: list[Fact], tally: Tally) -> bool:
    """Kill once and look; adds what was acknowledged to `facts` and says whether the bank can be gone on with."""
    random = rng("bank-durability", seed, point)
    if mode == "import":
        with open_bank(path) as bank:
            bank.export_jsonl(path.with_name("export.jsonl"))
    new = _work_and_kill(path, mode, seed, point, random, tally)
    tally.points += 1
    tally.acknowledged += len(new)
    if mode == "import":
        _check_imports(path, new, tally)
    elif mode == "checkpoint":
        _check_checkpoint(path.with_name("checkpoint.sqlite"), new, tally)
    new = [fact for fact in new if fact[0] not in ("checkpoint", "imported")]
    lost, problems = check(path, new)
    tally.lost += lost
    tally.problems += [f"point {point}: {problem}" for problem in problems]
    if problems:
        return False
    known = max((fact[1] for fact in [*facts, *new] if fact[0] == "operation"), default=0)
    with open_bank(path, read_only=True) as bank:
        late = [record for record in bank.log(1000) if record.id > known]
    tally.unacknowledged += len(late)
    facts += new
    return True


def _work_and_kill(path: Path, mode: str, seed: int, point: int, random: np.random.Generator, tally: Tally) -> list[Fact]:
    """Start a worker, kill it, and return what it had acknowledged."""
    arguments = ["operations" if mode == "power loss" else mode, str(path), str(seed), str(point)]
    command = [sys.executable, "-m", "benchmarks.bank_load", *arguments]
    # A file takes acknowledgements without ever making the worker wait for whoever reads them.
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as complaints:
        worker = subprocess.Popen(command, stdout=output, stderr=complaints)
        deadline = time.monotonic() + _START_TIMEOUT
        while not os.fstat(output.fileno()).st_size and worker.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(float(random.uniform(0, _LONGEST_WAIT)))
        if mode == "power loss":
            worker.send_signal(signal.SIGSTOP)
            copies = {suffix: Path(f"{path}{suffix}").read_bytes() for suffix in ("", "-wal", "-shm")}
        worker.kill()
        worker.wait(timeout=_START_TIMEOUT)
        complaints.seek(0)
        if worker.returncode != -signal.SIGKILL:
            tally.problems.append(f"point {point}: the worker ended by itself: {complaints.read()[-500:]}")
        output.seek(0)
        facts = [fact for line in output if line.endswith("\n") for fact in json.loads(line)]
    if mode == "power loss":
        _check_power_losses(path, copies, facts, random, tally)
    return facts


# --- what has to hold ------------------------------------------------------------------------------------------------------------


def check(path: Path, facts: Sequence[Fact]) -> tuple[int, list[str]]:
    """Acknowledged facts that the bank at `path` lacks, and everything that is wrong with it."""
    problems = []
    try:
        with open_bank(path) as bank:
            problems += _inconsistencies(path, bank)
            missing = _missing(path, bank, facts)
    except UserError as error:
        return len(facts), [f"the bank does not open: {error}"]
    return len(missing), problems + [f"acknowledged and not there: {fact}" for fact in missing]


def _missing(path: Path, bank: Bank, facts: Sequence[Fact]) -> list[Fact]:
    records = {record.id: ["operation", record.id, record.step, record.kind, record.payload] for record in bank.log(10**9)}
    outcomes = dict(_rows(path, "SELECT trajectory_id, count(*) FROM outcomes GROUP BY 1"))
    credits = dict(_rows(path, "SELECT generation_id, value FROM credits"))
    held = {"operation": lambda fact: records.get(fact[1]), "outcomes": lambda fact: ["outcomes", fact[1], outcomes.get(fact[1])]}
    held["credits"] = lambda fact: ["credits", fact[1], credits.get(fact[1])]
    return [fact for fact in facts if held[fact[0]](fact) != fact]


def _inconsistencies(path: Path, bank: Bank) -> list[str]:
    problems = []
    if (found := _rows(path, "PRAGMA integrity_check")) != [("ok",)]:
        problems.append(f"integrity check: {found[:3]}")
    live = bank.entries()
    if bank.rebuild(bank.last_step) != live:
        problems.append("the log does not rebuild the live entries")
    if sorted(entry.id for entry, _ in bank.search_text("exit", 10**6)) != [entry.id for entry in live]:
        problems.append("the index does not hold the live entries")
    if _rows(path, f"SELECT trajectory_id FROM outcomes GROUP BY 1 HAVING count(*) != {ROLLOUTS}"):
        problems.append("a transaction was kept by half: outcomes")
    if _rows(path, "SELECT id FROM generations WHERE id NOT IN (SELECT generation_id FROM credits)"):
        problems.append("a transaction was kept by half: generations without their credits")
    return problems


def _rows(path: Path, sql: str) -> list[tuple]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def _newest(path: Path) -> int:
    """Id of the newest operation, 0 without one or without a bank; what is wrong with a file `check` tells."""
    try:
        with open_bank(path, read_only=True) as bank:
            return max((record.id for record in bank.log(1)), default=0)
    except UserError:
        return 0


def _check_checkpoint(checkpoint: Path, facts: Sequence[Fact], tally: Tally) -> None:
    """The file at a checkpoint's place is a whole bank, the last acknowledged one or the next."""
    acknowledged = [fact[1] for fact in facts if fact[0] == "checkpoint"]
    if not acknowledged and not checkpoint.exists():
        return
    restored = checkpoint.with_name("restored.sqlite")
    try:
        Bank.restore(checkpoint, restored)
        with open_bank(restored) as bank:
            tally.problems += _inconsistencies(restored, bank)
            newest = bank.log(1)[0].id
    except UserError as error:
        tally.problems.append(f"a checkpoint does not open: {error}")
        return
    if acknowledged and newest < acknowledged[-1]:
        tally.lost += 1
        tally.problems.append(f"the acknowledged checkpoint of operation {acknowledged[-1]} is one of operation {newest}")


def _check_imports(path: Path, facts: Sequence[Fact], tally: Tally) -> None:
    """Banks that were imported are whole; the one under way is there whole or not at all, and can be imported again."""
    export = path.with_name("export.jsonl")
    rows = len(export.read_text(encoding="utf-8").splitlines()) - 2
    done = {Path(fact[1]) for fact in facts}
    for missing in [place for place in done if not place.exists()]:
        tally.lost += 1
        tally.problems.append(f"{missing.name} was imported and is not there")
    for place in sorted(path.parent.glob("imported-*.sqlite")):
        with open_bank(place) as bank, open_bank(path, read_only=True) as original:
            tally.problems += _inconsistencies(place, bank)
            if bank.entries(live_only=False) != original.entries(live_only=False) or bank.log(10**9) != original.log(10**9):
                tally.problems.append(f"{place.name} differs from what was exported")
    number = len(done)
    under_way = path.with_name(
        f"{min(done, default=path.with_name('imported-x-0.sqlite')).name.rpartition('-')[0]}-{number}.sqlite"
    )
    if not under_way.exists() and Bank.import_from(export, under_way) != rows:
        tally.problems.append("importing again gives other rows")
    for leftover in [*path.parent.glob("imported-*"), *path.parent.glob(".imported-*")]:
        leftover.unlink()


# --- power loss ------------------------------------------------------------------------------------------------------------------


def _check_power_losses(
    path: Path, copies: dict[str, bytes], facts: Sequence[Fact], random: np.random.Generator, tally: Tally
) -> None:
    """Of the write-ahead log only what was synced is sure to be on the disk: up to where SQLite began to copy it into the database.

    What is left must be a whole bank of some earlier moment. How many acknowledged facts that costs is not counted as lost: it is
    what `synchronous=NORMAL` means.
    """
    if len(copies["-wal"]) < 32:
        return
    frame = 24 + struct.unpack(">I", copies["-wal"][8:12])[0]
    used, synced = (struct.unpack_from("<I", copies["-shm"], offset)[0] for offset in (16, 128))
    for cut in random.integers(synced, used + 1, size=_CUTS):
        home = path.with_name("power-loss")
        home.mkdir()
        copy = home / "bank.sqlite"
        copy.write_bytes(copies[""])
        kept = copies["-wal"][: 32 + int(cut) * frame]
        zeros = bytes(int(random.integers(0, 3)) * frame + int(random.integers(frame)))
        copy.with_name("bank.sqlite-wal").write_bytes(kept + zeros)
        newest = _newest(copy)
        before = [fact for fact in facts if fact[0] == "operation" and fact[1] <= newest]
        tally.problems += [f"after a power loss: {problem}" for problem in check(copy, before)[1]]
        tally.power_losses.append(sum(fact[0] == "operation" for fact in facts) - len(before))
        shutil.rmtree(home)


def report(tallies: dict[str, Tally]) -> bool:
    """Print what was found; returns whether all is well."""
    table = Table("under way", "kill points", "acknowledged", "lost", "kept, not acknowledged", "problems")
    for mode, tally in tallies.items():
        numbers = (tally.points, tally.acknowledged, tally.lost, tally.unacknowledged, len(tally.problems))
        table.add_row(mode, *(f"{number:,}" for number in numbers))
    everything = list(tallies.values())
    sums = [sum(getattr(t, name) for t in everything) for name in ("points", "acknowledged", "lost", "unacknowledged")]
    problems = [problem for tally in everything for problem in tally.problems]
    table.add_row("all", *(f"{number:,}" for number in [*sums, len(problems)]))
    Console().print(table)
    costs = [cost for tally in everything for cost in tally.power_losses]
    if costs:
        print(f"{len(costs)} power losses cost {np.median(costs):g} acknowledged operations in the median, {max(costs)} at most")
    for problem in problems[:20]:
        print(problem)
    return not problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=200, help="moments to kill at (default: 200)")
    parser.add_argument("--seed", type=int, default=0, help="of moments and operations (default: 0)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return 0 if report(run(options.points, options.seed, Path(folder))) else 1


if __name__ == "__main__":
    sys.exit(main())
