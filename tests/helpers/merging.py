"""A merger over a real bank, with a scripted extractor."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from complementary_rl.config import ExtractorConfig, MergeConfig
from complementary_rl.experience.bank import Bank
from complementary_rl.experience.embedding import Embedder
from complementary_rl.experience.extractor import Extractor
from complementary_rl.experience.merge import Merger
from complementary_rl.experience.tally import Tally
from complementary_rl.prompts import PromptSet
from tests.helpers.banks import add, open_bank
from tests.helpers.scripted import ScriptedEngine

KEEP_ALL = "[]"


def texts_of(prompt: str) -> list[str]:
    """The texts of the entries in a prompt."""
    return re.findall(r"^\d+: \[.*?\] (.*) \(\d+/\d+\)$", prompt, re.MULTILINE)


class Bench:
    """`reply`: the prompt of a chunk → the extractor's answer. `settings` are those of `MergeConfig`."""

    def __init__(
        self, path: Path, reply: Callable[[str], str], *, context: int = 4096, embedder: Embedder | None = None, **settings: Any
    ) -> None:
        self.bank: Bank = open_bank(path, embedder=embedder)
        self.engine = ScriptedEngine(reply, max_context=context)
        config = ExtractorConfig.model_validate({"sampling": {"max_new_tokens": 200}})
        extractor = Extractor(
            self.engine, self.engine.codec, PromptSet.load("compact"), config, run_seed=0, instructions=lambda task: ""
        )
        self.tally = Tally()
        self.merger = Merger(self.bank, extractor, MergeConfig.model_validate({"chunk": 4, **settings}), self.tally)

    def fill(self, *sizes: int, scope: str = "rooms") -> None:
        """Shelves of so many entries."""
        for shelf, size in enumerate(sizes):
            for i in range(size):
                add(self.bank, f"note {shelf}.{i}", key=f"room {shelf}", scope=scope)

    def chunks(self) -> list[list[int]]:
        """Ids of the entries in each prompt."""
        ids = {entry.text: entry.id for entry in self.bank.entries(live_only=False)}
        return [[ids[text] for text in texts_of(prompt)] for prompt in self.engine.prompts()]

    def run(self, step: int = 1) -> None:
        asyncio.run(self.merger.run(step))
