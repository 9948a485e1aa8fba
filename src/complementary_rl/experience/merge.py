"""Merge: the extractor consolidates the bank, a few chunks at a time.

    one pass over the bank → strands ─┬─ SlidingChunks ─┐
                                      └─ Clusters ──────┴→ chunks → extractor → keep / merge / drop, one transaction per chunk

A merge takes at most `max_chunks` chunks, those of a round in one batched call, and the next merge goes on where this one stopped.
The pass and the counting of near-duplicates run in a thread and lock the bank for a moment at a time; nothing is locked while the
extractor reads.
"""

import asyncio
from typing import Any

from complementary_rl.config import MergeConfig
from complementary_rl.experience.bank import Added, Bank
from complementary_rl.experience.candidates import Candidates, Chunk, Clusters, SlidingChunks
from complementary_rl.experience.crediting import Output, all_refused
from complementary_rl.experience.extractor import Extractor, Merged
from complementary_rl.experience.near_duplicates import NearDuplicates
from complementary_rl.experience.strands import Strands, read_strands
from complementary_rl.experience.tally import Tally
from complementary_rl.experience.waiting import EXTRACTOR_SECONDS, watched
from complementary_rl.types import Generation, Operation


class Merger:
    """Runs merges over one bank and counts in `tally` what they did, under names that start with ``merge_``."""

    def __init__(self, bank: Bank, extractor: Extractor, config: MergeConfig, tally: Tally) -> None:
        self._bank = bank
        self._extractor = extractor
        self._config = config
        self._tally = tally
        self._near: NearDuplicates | None = None
        if config.mode == "clusters" or config.redundancy is not None:
            self._near = NearDuplicates(bank, config.similarity)
        self._candidates: Candidates = SlidingChunks(bank, config.chunk)
        if config.mode == "clusters":
            assert self._near is not None
            self._candidates = Clusters(bank, self._near, config.chunk, tally)

    async def redundant(self) -> bool:
        """Whether the entries that have near-duplicates, and were not read beside them yet, are `merge.redundancy` of the bank."""
        assert self._near is not None
        assert self._config.redundancy is not None
        await self._look()
        unread = len(self._near.unread())
        return unread > 0 and unread >= self._config.redundancy * len(self._bank)

    async def run(self, step: int) -> list[tuple[Generation, Output]]:
        """One merge. Returns the answers that wrote nothing though they tried, as distillation credits them: "unparsable", or "refused"
        where the bank took none of their texts.

        An operation on entries that were retired while the extractor read is skipped and counted (``merge_conflict``); what is left of
        its chunk is read again.
        """
        for_nothing: list[tuple[Generation, Output]] = []
        self._candidates.begin(await self._look())
        taken = 0
        while taken < self._config.max_chunks:
            chunks = await self._candidates.next(self._config.max_chunks - taken)
            if not chunks:
                break
            ids = [f"m/s{step}-{taken + i}" for i in range(len(chunks))]
            taken += len(chunks)
            results = await watched(
                self._extractor.merge([chunk.entries for chunk in chunks], ids),
                who="the merge",
                what=f"the extractor to read {len(chunks)} chunks of the bank",
                limit=EXTRACTOR_SECONDS,
            )
            for chunk, result in zip(chunks, results, strict=True):
                if result is None:
                    self._tally.count("merge_too_long")
                    self._answered(chunk, [], settled=True)
                elif (output := self._apply(chunk, result, step)) is not None:
                    for_nothing.append((result.generation, output))
                await asyncio.sleep(0)  # searches go between two transactions
        return for_nothing

    def state_dict(self) -> dict[str, Any]:
        return {
            "candidates": self._candidates.state_dict(),
            "read": None if self._near is None else self._near.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._candidates.load_state_dict(state["candidates"])
        if self._near is not None:
            self._near.load_state_dict(state["read"])

    async def _look(self) -> Strands:
        """The pass over the bank."""
        strands = await asyncio.to_thread(read_strands, self._bank)
        if self._near is not None:
            await self._near.update(strands)
            self._tally.observe("near_duplicate_share", self._near.share())
        return strands

    def _apply(self, chunk: Chunk, result: Merged, step: int) -> Output | None:
        """Apply an answer; what it was if it wrote nothing though it tried."""
        self._tally.count("merge_chunks")
        self._tally.count("merge_repaired", result.parsed.repaired)
        for reason, count in result.parsed.problems.items():
            self._tally.count(f"merge_problem_{reason}", count)
        taken: list[Added] = []
        conflicts = 0
        with self._bank.transaction():
            self._bank.record_generations([result.generation])
            for operation in result.parsed.operations:
                if all(self._bank.is_live(target) for target in operation.targets):
                    taken += self._apply_operation(operation, result.generation.id, step)
                else:
                    conflicts += 1
        self._tally.count("merge_conflict", conflicts)
        made = [added.entry_id for added in taken if added.entry_id is not None]
        self._tally.count("merge_refused", len(taken) - len(made))
        self._answered(chunk, made, settled=result.parsed.parsable and not conflicts)
        if not result.parsed.parsable:
            self._tally.count("merge_unparsable")
            return "unparsable"
        return "refused" if all_refused(taken) else None

    def _answered(self, chunk: Chunk, made: list[int], *, settled: bool) -> None:
        self._candidates.answered(chunk, made, settled=settled)
        if self._near is not None and self._config.mode == "chunks":
            # Sliding chunks come round by themselves, settled or not.
            self._near.mark_read(entry.id for entry in chunk.entries)

    def _apply_operation(self, operation: Operation, generation_id: str, step: int) -> list[Added]:
        """What became of its text, where it has one."""
        self._tally.count(f"merge_{operation.kind}")
        if operation.kind == "drop":
            self._bank.drop(operation.targets, step=step, generation_id=generation_id)
            return []
        assert operation.text is not None
        return [self._bank.merge(operation.targets, operation.text, step=step, generation_id=generation_id)]
