"""The experience manager: one service between the loops and the bank.

    rollouts ── retrieve, ask ──→ ┌─────────┐ ←── distil ── queue ←── submit ── finished episodes
    outcomes ── record_rollouts ─→│  bank   │
                     │ credit     └─────────┘ ←── merge
                     └→ extractor's buffer ──→ extractor loop

It runs in one event loop. Bank operations are short and synchronous, and nothing is held across an await, so there is no lock that a
cancelled task could leave behind. Only the extractor and the query path are awaited; all that the actor's loop ever waits for is
`retrieve` and `ask`, which have time limits, and room in the queue.

Without a worker (lockstep) `drain` and `merge` do their work where they are called. With one (async, see `start`) it distils and merges in
the background, and both return at once or wait for it with a limit.

Retrieval for training takes the query path in the schedule `async` (micro-batches, threads, deadlines). In lockstep, and for
evaluation, it is one synchronous call: no clock may decide what a deterministic run or a measurement sees.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, NamedTuple

from complementary_rl.config import Config
from complementary_rl.errors import InfrastructureError, UserError
from complementary_rl.experience.bank import Bank, Query
from complementary_rl.experience.buffer import ExtractorBuffer
from complementary_rl.experience.crediting import Crediting, Output, by_group
from complementary_rl.experience.distiller import Distiller, Judge, SetAside
from complementary_rl.experience.extractor import Extractor
from complementary_rl.experience.gate import SuccessRates
from complementary_rl.experience.merge import Merger
from complementary_rl.experience.query_path import Hands, QueryPath
from complementary_rl.experience.questions import Answer, Question
from complementary_rl.experience.selection import best_and_worst
from complementary_rl.experience.tally import Tally
from complementary_rl.experience.transcript import transcript_of
from complementary_rl.experience.waiting import watched
from complementary_rl.objectives.cispo import CreditedGeneration
from complementary_rl.types import Condition, Generation, Metrics, Task, Trajectory

Shelved = list[tuple[int, str]]
"""Entries that are shown together, as (id, text)."""

QUEUE_SECONDS = 3600.0
"""How long `submit` waits for room, and `drain` for the worker, before they say that distillation stands still."""
ENTRIES_PER_QUESTION = 3
"""Entries an answer is made from: more than a rollout is shown, since the extractor reads them and not the actor."""


class _MergeDue(NamedTuple):
    """A merge that was asked for; `if_redundant`: only when the bank is redundant enough."""

    step: int
    if_redundant: bool


class ExperienceManager:
    """See the module's docstring. `extractor` is None when nothing is ever written or answered (method "offline").

    `judge`, if given, is only asked for metrics. `train_extractor` False leaves the buffer empty, since nobody would take from it.
    """

    def __init__(
        self, bank: Bank, extractor: Extractor | None, config: Config, *, judge: Judge | None = None, train_extractor: bool = True
    ) -> None:
        self.bank = bank
        self.buffer = ExtractorBuffer(max_staleness=config.extractor.max_staleness, retrain_gap=config.extractor.retrain_gap)
        self.rates = SuccessRates()
        self._config = config
        self._extractor = extractor
        self._tally = Tally()
        self._crediting = Crediting(bank, self.buffer, config.credit, self._tally) if train_extractor else None
        self._distiller: Distiller | None = None
        self._merger: Merger | None = None
        if extractor is not None:
            self._distiller = Distiller(bank, extractor, config.distill, self._tally, credit=self._credit_output, judge=judge)
            self._merger = Merger(bank, extractor, config.merge, self._tally)
        self._query_path = QueryPath(bank, config.retrieval, self._tally) if config.run.schedule == "async" else None
        self._worker: asyncio.Task[None] | None = None
        self._merge_due: _MergeDue | None = None

    # --- what rollouts need ------------------------------------------------------------------------------------------------------

    async def retrieve(self, tasks: Sequence[Task], seeds: Sequence[int], step: int, *, training: bool) -> list[list[Shelved]]:
        """Sets of (entry id, text) to show, per task: `entries_per_group` of them while training, one in evaluation; [] when the
        bank has nothing near enough or the answer is late (`retrieval.timeout`), so that the rollouts are free."""
        settings = self._config.retrieval
        sets = settings.entries_per_group if training else 1
        queries = [
            Query(task.description, task.scope, settings.entries_per_rollout, seed, sets)
            for task, seed in zip(tasks, seeds, strict=True)
        ]
        found = await self._find(queries, step, training=training)
        return [[[(entry.entry_id, entry.text) for entry in hand] for hand in hands] for hands in found]

    async def ask(self, questions: Sequence[Question], step: int, *, training: bool = True) -> list[Answer | None]:
        """search_and_ask: retrieve for each question and let the extractor answer, within `tool.timeout` seconds.

        None stands for a question about which the bank holds nothing (nothing is made up for it), or whose entries or answer did not
        come in time, or whose answer is empty. `training` counts the entries as retrieved.
        """
        assert self._extractor is not None
        self._tally.count("questions", len(questions))
        queries = [Query(f"{q.task.description} {q.question}", q.task.scope, ENTRIES_PER_QUESTION, q.seed) for q in questions]
        found = await self._find(queries, step, training=training)
        texts = {q.id: [entry.text for hand in hands for entry in hand] for q, hands in zip(questions, found, strict=True)}
        known = [question for question in questions if texts[question.id]]
        generations = await self._answers(known, [texts[question.id] for question in known])
        self.bank.record_generations(generations.values())
        answers = {name: self._extractor.text(generation) for name, generation in generations.items()}
        self._tally.count("answers", sum(bool(text) for text in answers.values()))
        return [Answer(answers[q.id], q.id) if answers.get(q.id) else None for q in questions]

    # --- what finished rollouts tell ---------------------------------------------------------------------------------------------

    async def record_rollouts(
        self, trajectories: Sequence[Trajectory], step: int, gate_scores: Mapping[str, float] | None = None
    ) -> None:
        """Count outcomes in the bank and turn them into credit of the generations that wrote what was shown.

        `gate_scores`: trajectory id → s_gate of Eq 8, see `group_credits`.
        """
        _assert_training(trajectories)
        self.rates.record(trajectories)
        free = [(t.task.scope, t.success) for t in trajectories if t.condition is Condition.FREE]
        outcomes = [(entry, t.success, t.id) for t in trajectories for entry in t.entry_ids]
        with self.bank.transaction():
            self.bank.record_free(free)  # first: guided rollouts are compared with the free half of their own step too
            self.bank.record_outcomes(step, outcomes, scopes={t.id: t.task.scope for t in trajectories})
            if self._crediting is not None:
                self._crediting.credit_rollouts(trajectories, step, gate_scores)

    async def submit(self, trajectories: Sequence[Trajectory]) -> None:
        """Queue episodes for distillation, at most `distill.per_group` of a group. While the queue is full it waits for the worker,
        or reads a batch itself when there is none; nothing is dropped.

        Raises InfrastructureError when there is no room for `QUEUE_SECONDS`, and what the worker died of.
        """
        _assert_training(trajectories)
        distiller = self._distilling
        for group in by_group(trajectories):
            for trajectory in best_and_worst(group, self._config.distill.per_group):
                while distiller.queue.full:
                    if self._worker is None:
                        await distiller.read_batch()
                    else:
                        await self._wait_for_worker(distiller.queue.room(), f"room for episode {trajectory.id}")
                distiller.queue.put(transcript_of(trajectory))

    async def drain(self) -> None:
        """Return when everything queued has been distilled, in order.

        Raises InfrastructureError when the worker does not manage within `QUEUE_SECONDS`, and what it died of.
        """
        distiller = self._distilling
        if self._worker is not None:
            await self._wait_for_worker(distiller.queue.join(), "the queue to empty")
        while distiller.queue:
            await distiller.read_batch()

    async def merge(self, step: int, *, if_redundant: bool = False) -> None:
        """One merge of the bank; with `if_redundant` only when `merge.redundancy` is reached. With a worker it only leaves word: the
        worker looks, or merges, after the batch it is reading."""
        due = _MergeDue(step, if_redundant)
        if self._worker is None:
            await self._merge(due)
            return
        if self._merge_due is not None and not self._merge_due.if_redundant:
            self._tally.count("merges_skipped", not if_redundant)
            due = _MergeDue(step, if_redundant=False)
        self._merge_due = due
        self._distilling.queue.changed.notify()

    # --- the background worker (async schedule) ----------------------------------------------------------------------------------

    def start(self) -> "asyncio.Task[None]":
        """Start the worker; returns its task, so that its failure is seen."""
        assert self._worker is None
        self._worker = asyncio.create_task(self._work(), name="distillation worker")
        return self._worker

    async def stop(self, within: float) -> None:
        """Stop the worker and distil what is still queued, within some seconds; what is left stays queued and is checkpointed.

        Raises what the worker died of, if it did, and distils nothing then.
        """
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.cancel()
            done, _ = await asyncio.wait({worker}, timeout=within)
            if done and not worker.cancelled():
                worker.result()
        try:
            async with asyncio.timeout(within):
                await self.drain()
        except TimeoutError:
            left = len(self._distilling.queue)
            self._tally.tell(f"{left} episodes still waited for distillation after {within:.0f} s; they stay queued")

    def close(self) -> None:
        """End the threads of the query path. Idempotent."""
        if self._query_path is not None:
            self._query_path.close()

    async def _work(self) -> None:
        distiller = self._distilling
        while True:
            due = self._merge_due
            if due is not None:
                await self._merge(due)
                # Word of a merge that was left while it only looked stands.
                if self._merge_due is due or not due.if_redundant:
                    self._merge_due = None
            elif distiller.queue:
                await distiller.read_batch()
            else:
                # The one wait without a limit: there may be no work for as long as the actor likes.
                await distiller.queue.changed.wait()

    async def _wait_for_worker(self, work: Coroutine[Any, Any, None], what: str) -> None:
        """Await something that the worker brings about, and fail with it."""
        assert self._worker is not None
        waiter = asyncio.ensure_future(work)
        try:
            await watched(
                _first_of(waiter, self._worker),
                who="the actor's loop",
                what=f"{what}; the distillation worker has {len(self._distilling.queue)} episodes queued",
                limit=QUEUE_SECONDS,
            )
        finally:
            waiter.cancel()

    # --- what the extractor's loop needs -----------------------------------------------------------------------------------------

    def take_extractor_batch(self, version: int, *, update: int) -> list[CreditedGeneration] | None:
        """|Bφ| credited generations for update number `update`, or None while fewer are fresh enough."""
        taken = self.buffer.take(self._config.extractor.batch_size, version=version, update=update)
        if not taken:
            return None
        generations = self.bank.generations([item.generation_id for item in taken])
        return [
            CreditedGeneration(generation, item.credit, item.times_trained, item.last_trained_update)
            for generation, item in zip(generations, taken, strict=True)
        ]

    def mark_trained(self, generation_ids: Sequence[str], *, update: int) -> None:
        """Count an update for Eq 7, in the buffer and in the bank's statistics."""
        self.buffer.mark_trained(generation_ids, update=update)
        self.bank.mark_trained(generation_ids, update)

    # --- metrics and state -------------------------------------------------------------------------------------------------------

    @property
    def set_aside(self) -> list[SetAside]:
        """Every episode of the run that the extractor could not be made to read, with its cause."""
        return [] if self._distiller is None else self._distiller.set_aside

    def take_metrics(self) -> Metrics:
        """What happened since the last call, and how things stand now; docs/experience.md names them all."""
        metrics = self._tally.take()
        metrics |= {f"bank_{name}": float(value) for name, value in self.bank.counts().items()}
        if self._query_path is not None:
            # A cache is cold after a resume: in lockstep its counts would be the one difference to the unbroken run.
            metrics |= self.bank.embedder.take_metrics()
        metrics["queue"] = float(len(self._distiller.queue)) if self._distiller is not None else 0.0
        metrics["buffer"] = float(len(self.buffer))
        metrics["dropped_stale"] = float(self.buffer.dropped_stale)
        return metrics

    def take_events(self) -> list[str]:
        """What a person should know of, since the last call; among them every episode set aside, with its cause."""
        return self._tally.take_events()

    def state_dict(self) -> dict[str, Any]:
        """JSON-able; with the bank's own checkpoint, all there is. Queued episodes are kept whole, those being read included."""
        return {
            "buffer": self.buffer.state_dict(),
            "rates": self.rates.state_dict(),
            "merge_due": None if self._merge_due is None else list(self._merge_due),
            "merger": None if self._merger is None else self._merger.state_dict(),
            "distiller": None if self._distiller is None else self._distiller.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        self.buffer.load_state_dict(state["buffer"])
        self.rates.load_state_dict(state["rates"])
        self._merge_due = None if state["merge_due"] is None else _MergeDue(*state["merge_due"])
        if self._merger is not None:
            self._merger.load_state_dict(state["merger"])
        if self._distiller is not None:
            self._distiller.load_state_dict(state["distiller"])

    # --- inside ------------------------------------------------------------------------------------------------------------------

    @property
    def _distilling(self) -> Distiller:
        assert self._distiller is not None, "this run has no extractor"
        return self._distiller

    def _credit_output(self, generation: Generation, output: Output, step: int) -> None:
        if self._crediting is not None:
            self._crediting.credit_output(generation, output, step)

    async def _find(self, queries: Sequence[Query], step: int, *, training: bool) -> list[Hands]:
        """The sets of each query; none where the answer is late."""
        if training and self._query_path is not None:
            found = await self._query_path.retrieve(queries, step)
            if found is None:
                return [[] for _ in queries]
        else:
            found = self.bank.retrieve(queries, step=step, retrieval=self._config.retrieval, training=training)
        first = {entry.entry_id: entry.first_after for hands in found for hand in hands for entry in hand}
        for steps in first.values():
            if steps is not None:
                self._tally.observe("lag_steps", steps)
        return found

    async def _answers(self, questions: Sequence[Question], texts: Sequence[Sequence[str]]) -> dict[str, Generation]:
        assert self._extractor is not None
        tool = self._config.tool
        try:
            async with asyncio.timeout(tool.timeout):
                generations = await self._extractor.answer(questions, texts, tool.max_new_tokens)
        except TimeoutError:
            self._tally.count("answers_late", len(questions))
            return {}
        except (InfrastructureError, UserError):
            raise
        except Exception as error:
            self._tally.count("answers_failed", len(questions))
            self._tally.tell(f"{len(questions)} questions got no answer, the extractor failed: {type(error).__name__}: {error}")
            return {}
        return {generation.id: generation for generation in generations if generation is not None}

    async def _merge(self, due: _MergeDue) -> None:
        assert self._merger is not None
        try:
            if due.if_redundant and not await self._merger.redundant():
                return
            self._tally.count("merges")
            self._tally.count("merges_for_redundancy", due.if_redundant)
            for_nothing = await self._merger.run(due.step)
        except (InfrastructureError, UserError):
            raise
        except Exception as error:
            self._tally.count("merge_failures")
            self._tally.tell(f"the merge of step {due.step} was broken off, the extractor failed: {type(error).__name__}: {error}")
            return
        for generation, output in for_nothing:
            self._credit_output(generation, output, due.step)


async def _first_of(waiter: "asyncio.Future[None]", worker: "asyncio.Task[None]") -> None:
    """Wait for `waiter`; a worker that ends before is an error, its own if it had one."""
    await asyncio.wait({waiter, worker}, return_when=asyncio.FIRST_COMPLETED)
    if waiter.done():
        waiter.result()
        return
    worker.result()
    raise AssertionError("the distillation worker works until it is stopped")


def _assert_training(trajectories: Sequence[Trajectory]) -> None:
    assert all(t.task.split == "train" for t in trajectories), "the bank is never written from held-out tasks"
