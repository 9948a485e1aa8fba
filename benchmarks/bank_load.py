"""What `bank_durability` kills: a process that works on a bank and acknowledges on stdout, one JSON line after each thing is done.

An acknowledgement is a list of facts that have to hold from then on: ["operation", id, step, kind, payload], ["outcomes", trajectory,
number], ["credits", generation, value], ["checkpoint", newest operation], ["imported", path, rows].
"""

import json
import os
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from complementary_rl.config import BankConfig
from complementary_rl.errors import BankError
from complementary_rl.experience.bank import Bank
from complementary_rl.experience.embedding import HashingEmbedder
from complementary_rl.seeds import rng
from complementary_rl.types import Generation

Fact = list[Any]

CAPACITY = 60
ROLLOUTS = 8
"""Outcomes of one transaction."""

_MOST_OPERATIONS = 90
"""Log records of one transaction, at most."""

_TOKENS = tuple(range(8000))
_LOGPROBS = (-0.5,) * len(_TOKENS)
"""Long, so that much of the time goes into writing pages: that is where a kill hurts most."""

_KEYS = [f"Find the exit of the {name}." for name in ("Amber Gallery", "Crimson Vault", "Silver Court", "Old Mill", "Long Hall")]


def open_bank(path: Path, *, read_only: bool = False) -> Bank:
    config = BankConfig(capacity=CAPACITY, eviction="value")
    return Bank.open(path, config, HashingEmbedder(), run_id="durability", read_only=read_only)


def busy_life(bank: Bank, random: np.random.Generator, life: str) -> Iterator[list[Fact]]:
    """Mixed operations without end; yields what has to be kept after each."""
    newest = bank.log(1)[0].id if bank.log(1) else 0
    for number in count():
        facts = _act(bank, random, f"{life}.{number}", step=bank.last_step + int(random.random() < 0.05))
        records = [record for record in bank.log(_MOST_OPERATIONS) if record.id > newest]
        newest = max([newest, *(record.id for record in records)])
        yield [*facts, *(["operation", record.id, record.step, record.kind, record.payload] for record in records)]


def _act(bank: Bank, random: np.random.Generator, token: str, step: int) -> list[Fact]:
    live = [entry.id for entry in bank.entries()]
    if len(live) < 4:
        _add(bank, random, token, step)
        return []
    targets = [int(i) for i in random.choice(live, size=3, replace=False)]
    match random.choice(["add", "update", "merge", "drop", "revert", "step", "bulk"], p=[0.25, 0.2, 0.15, 0.05, 0.1, 0.2, 0.05]):
        case "add":
            _add(bank, random, token, step)
        case "update":
            bank.update(targets[0], f"note {token}, refined", key_text=_KEYS[0], scope="rooms", step=step, generation_id=token)
        case "merge":
            bank.merge(targets, f"note {token}, merged", step=step, generation_id=token)
        case "drop":
            bank.drop(targets[:2], step=step)
        case "revert":
            for record in reversed(bank.log(4)):
                try:
                    bank.revert(record.id, step=step)
                    break
                except BankError:
                    continue  # built on since, reverted already, or nothing to undo
        case "bulk":
            with bank.transaction():
                for part in range(_MOST_OPERATIONS // 2):  # each evicts another
                    _add(bank, random, f"{token}.{part}", step)
        case _:
            return _training_step(bank, random, token, step, targets)
    return []


def _add(bank: Bank, random: np.random.Generator, token: str, step: int) -> None:
    text = f"note {token} " + "x" * int(random.integers(400))
    bank.add(text, key_text=_KEYS[int(random.integers(len(_KEYS)))], scope="rooms", step=step, generation_id=token)


def _training_step(bank: Bank, random: np.random.Generator, token: str, step: int, shown: list[int]) -> list[Fact]:
    """Generations, entries, outcomes and credits in one transaction, as the manager writes them."""
    value = float(random.normal())
    with bank.transaction():
        names = [f"{token}/{i}" for i in range(3)]
        bank.record_generations(Generation(name, "extractor", 0, _TOKENS, _TOKENS, _LOGPROBS, "stop", 1.0) for name in names)
        for part in range(2):
            _add(bank, random, f"{token}.{part}", step)
        bank.record_outcomes(step, [(shown[i % 3], bool(random.random() < 0.5), token) for i in range(ROLLOUTS)])
        bank.record_credits(step, [(name, value, ROLLOUTS) for name in names])
    return [["outcomes", token, ROLLOUTS], *(["credits", name, value] for name in names)]


def _acknowledge(facts: list[Fact]) -> None:
    os.write(1, json.dumps(facts).encode() + b"\n")


def _operations(path: Path, random: np.random.Generator, life: str) -> None:
    with open_bank(path) as bank:
        for facts in busy_life(bank, random, life):
            _acknowledge(facts)


def _checkpoints(path: Path, random: np.random.Generator, life: str) -> None:
    with open_bank(path) as bank:
        for facts in busy_life(bank, random, life):
            _acknowledge(facts)
            newest = bank.log(1)[0].id
            bank.checkpoint_to(path.with_name("checkpoint.sqlite"))
            _acknowledge([["checkpoint", newest]])


def _imports(path: Path, life: str) -> None:
    for number in count():
        destination = path.with_name(f"imported-{life}-{number}.sqlite")
        rows = Bank.import_from(path.with_name("export.jsonl"), destination)
        _acknowledge([["imported", str(destination), rows]])


if __name__ == "__main__":
    mode, bank_path, seed, name = sys.argv[1:]
    if mode == "import":
        _imports(Path(bank_path), name)
    work = _checkpoints if mode == "checkpoint" else _operations
    work(Path(bank_path), rng("bank-load", int(seed), name), name)
