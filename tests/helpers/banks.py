"""Banks for tests: a scripted embedder, short ways to open, and a busy life of a bank."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from complementary_rl.config import BankConfig, RetrievalConfig
from complementary_rl.experience.bank import Bank, Query, Retrieved
from complementary_rl.experience.embedding import Embedder, HashingEmbedder, Vectors
from complementary_rl.types import Generation

KEYS = ["Find the exit of the Amber Gallery.", "Find the exit of the Crimson Vault.", "Cross the river."]


class AngleEmbedder:
    """Embeds "… @0.5" so that its cosine to "… @1" is 0.5: similarities a test can write down."""

    name = "angle"
    dimensions = 2

    def embed(self, texts: Sequence[str]) -> Vectors:
        cosines = np.array([float(text.rpartition("@")[2]) for text in texts]).reshape(-1)
        return np.stack([cosines, np.sqrt(1 - cosines**2)], axis=1).astype(np.float32)


def open_bank(
    path: Path,
    *,
    embedder: Embedder | None = None,
    run_id: str | None = "run",
    read_only: bool = False,
    retrieval: RetrievalConfig | None = None,
    **config: Any,
) -> Bank:
    """A bank that takes junk too, unless told otherwise: tests file texts such as "note" and "unknown"."""
    settings = BankConfig(**{"junk_filter": False, **config})
    return Bank.open(path, settings, embedder or HashingEmbedder(), run_id=run_id, read_only=read_only, retrieval=retrieval)


def add(bank: Bank, text: str, *, key: str = KEYS[0], scope: str = "rooms", step: int = 0, generation: str | None = None) -> int:
    """Add an entry that must be new; returns its id."""
    added = bank.add(text, key_text=key, scope=scope, step=step, generation_id=generation)
    assert added.outcome == "added", added
    assert added.entry_id is not None
    return added.entry_id


def retrieve(
    bank: Bank,
    config: RetrievalConfig,
    *,
    text: str = KEYS[0],
    scope: str = "rooms",
    k: int = 1,
    sets: int = 1,
    seed: int = 0,
    step: int = 0,
    training: bool = False,
) -> list[list[Retrieved]]:
    """The sets of one query."""
    return bank.retrieve([Query(text, scope, k, seed, sets)], step=step, retrieval=config, training=training)[0]


def generation(name: str, tokens: int = 3) -> Generation:
    logprobs = tuple(float(np.float32(-0.1 * (i + 1))) for i in range(tokens))
    return Generation(name, "extractor", 2, tuple(range(7)), tuple(range(100, 100 + tokens)), logprobs, "stop", 0.7)


def live(bank: Bank, steps: range, seed: int = 0) -> None:
    """A busy life, the same for the same seed and state: every operation and record, several times a step."""
    config = RetrievalConfig(score="value", trial_rate=0.2)
    for step in steps:
        random = np.random.default_rng([seed, step])
        for i in range(6):
            key, name = KEYS[int(random.integers(3))], f"g{step}-{i}"
            bank.record_generations([generation(name)])
            bank.add(f"note {random.integers(60)}", key_text=key, scope="rooms", step=step, generation_id=name)
        ids = [entry.id for entry in bank.entries()]
        pick = [int(i) for i in random.choice(ids, size=3, replace=False)]
        bank.update(
            pick[0], f"rewritten {random.integers(60)}", key_text=KEYS[0], scope="rooms", step=step, generation_id=f"u{step}"
        )
        if step % 2:
            bank.merge(pick[1:], f"merged {step}", step=step, generation_id=f"m{step}")
        if step % 3 == 0:
            bank.drop(pick[2:], step=step)
        bank.record_return(step=step)
        queries = [Query(key, "rooms", 1, int(random.integers(1 << 30)), 2) for key in KEYS]
        shown = bank.retrieve(queries, step=step, retrieval=config, training=True)
        won = [(r.entry_id, bool(random.random() < 0.4), f"t{step}") for sets in shown for hand in sets for r in hand]
        bank.record_outcomes(step, won)
        bank.record_credits(step, [(f"g{step}-0", 0.5, 2)])
        bank.mark_trained([f"g{step}-0", f"g{step}-1"], update=step)
