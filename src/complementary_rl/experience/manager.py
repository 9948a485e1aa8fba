"""The experience manager: one service between the loops and the bank.

    rollouts ── retrieve, ask ──→ ┌─────────┐ ←── distil ── queue ←── submit ── finished episodes
    outcomes ── record_rollouts ─→│  bank   │
                     │ credit     └─────────┘ ←── merge
                     └→ extractor's buffer ──→ extractor loop

It runs in one event loop. Bank operations are short and synchronous, so no lock is ever held across an await; only the extractor's
sampling is awaited, and nothing of the actor's waits for it but `ask`, which has a time limit, and `submit` while the queue is full.
"""

import asyncio
import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from complementary_rl.config import Config
from complementary_rl.errors import InfrastructureError
from complementary_rl.experience.bank import Bank, Query
from complementary_rl.experience.buffer import ExtractorBuffer
from complementary_rl.experience.credit import Credit, group_credits, mean_credits
from complementary_rl.experience.extractor import Distilled, Extractor
from complementary_rl.experience.gate import SuccessRates
from complementary_rl.experience.merge import Merger
from complementary_rl.experience.questions import Answer, Question
from complementary_rl.objectives.cispo import CreditedGeneration
from complementary_rl.types import Metrics, Operation, Task, Trajectory

Judge = Callable[[Task, str], bool | None]
Shelved = list[tuple[int, str]]

SUBMIT_SECONDS = 600.0
"""How long `submit` waits for room in the queue before it says that distillation stands still."""
ENTRIES_PER_QUESTION = 3
MAX_WRITERS = 8
"""How many generations that wrote an entry's very text are credited with it, the newest ones."""

_trajectory = TypeAdapter(Trajectory)


@dataclass(slots=True)
class _Waiting:
    trajectory: Trajectory
    attempts: int = 0


class ExperienceManager:
    """See the module's docstring. `extractor` is None when nothing is ever written or answered (method "offline").

    `judge`, if given, is only asked for metrics. `train_extractor` False leaves the credit buffer empty, since nobody would take from it.
    """

    def __init__(
        self, bank: Bank, extractor: Extractor | None, config: Config, *, judge: Judge | None = None, train_extractor: bool = True
    ) -> None:
        self.bank = bank
        self.buffer = ExtractorBuffer(max_staleness=config.extractor.max_staleness, retrain_gap=config.extractor.retrain_gap)
        self.rates = SuccessRates()
        self._extractor = extractor
        self._config = config
        self._judge = judge
        self._train_extractor = train_extractor
        self._merger = Merger(bank, extractor, config.merge) if extractor is not None else None
        self._queue: list[_Waiting] = []
        self._singly = 0
        self._changed = asyncio.Condition()
        self._worker: asyncio.Task[None] | None = None
        self._counts: Counter[str] = Counter()
        self._lags: list[int] = []
        self._events: list[str] = []

    # --- what rollouts need ------------------------------------------------------------------------------------------------------

    async def retrieve(self, tasks: Sequence[Task], seeds: Sequence[int], step: int, *, training: bool) -> list[list[Shelved]]:
        """Sets of (entry id, text) to show, per task: `entries_per_group` of them while training, one in evaluation; [] when the bank has
        nothing near enough."""
        settings = self._config.retrieval
        sets = settings.entries_per_group if training else 1
        queries = [
            Query(task.description, task.scope, settings.entries_per_rollout, seed, sets)
            for task, seed in zip(tasks, seeds, strict=True)
        ]
        found = self.bank.retrieve(queries, step=step, retrieval=settings, training=training)
        if training:
            self._measure_lag([entry.entry_id for hands in found for hand in hands for entry in hand], step)
        return [[[(entry.entry_id, entry.text) for entry in hand] for hand in hands] for hands in found]

    async def ask(self, questions: Sequence[Question], step: int) -> list[Answer | None]:
        """search_and_ask: retrieve for each question and let the extractor answer. A question about which the bank holds nothing is
        answered by None, at once."""
        assert self._extractor is not None
        queries = [Query(f"{q.task.description} {q.question}", q.task.scope, ENTRIES_PER_QUESTION, q.seed) for q in questions]
        found = self.bank.retrieve(queries, step=step, retrieval=self._config.retrieval, training=True)
        texts = [[entry.text for hand in hands for entry in hand] for hands in found]
        answered = [i for i, known in enumerate(texts) if known]
        generations = await self._extractor.answer(
            [questions[i] for i in answered], [texts[i] for i in answered], self._config.tool.max_new_tokens
        )
        self.bank.record_generations(generations)
        self._counts["questions"] += len(questions)
        self._counts["answers"] += len(answered)
        answers: list[Answer | None] = [None] * len(questions)
        for i, generation in zip(answered, generations, strict=True):
            answers[i] = Answer(self._extractor.text(generation), generation.id)
        return answers

    # --- what finished rollouts tell ---------------------------------------------------------------------------------------------

    async def record_rollouts(
        self, trajectories: Sequence[Trajectory], step: int, gate_scores: Mapping[str, float] | None = None
    ) -> None:
        """Count outcomes in the bank and turn them into credit of the generations that wrote what was shown."""
        self.rates.record(trajectories)
        outcomes = [(entry, t.success, t.id) for t in trajectories for entry in t.entry_ids]
        with self.bank.transaction():
            self.bank.record_outcomes(step, outcomes)
            if self._train_extractor:
                self._credit(trajectories, step, gate_scores)

    async def submit(self, trajectories: Sequence[Trajectory]) -> None:
        """Queue episodes for distillation, at most `distill.per_group` of a group. While the queue is full, waits; drops nothing.

        Raises InfrastructureError when there is no room for `SUBMIT_SECONDS`."""
        assert all(t.task.split == "train" for t in trajectories), "the bank is never written from held-out tasks"
        groups: dict[int, list[Trajectory]] = defaultdict(list)
        for trajectory in trajectories:
            groups[trajectory.group].append(trajectory)
        for group in groups.values():
            for trajectory in select_for_distillation(group, self._config.distill.per_group):
                await self._enqueue(_Waiting(trajectory))

    async def drain(self) -> None:
        """Distil everything queued, in order (the lockstep schedule)."""
        while self._queue:
            await self._distill_batch()

    def start(self) -> "asyncio.Task[None]":
        """Start the background worker (the async schedule); returns its task, so that its failure is seen."""
        assert self._worker is None
        self._worker = asyncio.create_task(self._work(), name="distillation worker")
        return self._worker

    async def stop(self, timeout: float) -> None:
        """Stop the worker and distil what is still queued, within `timeout` seconds; what is left stays queued and is checkpointed."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
            self._worker = None
        try:
            await asyncio.wait_for(self.drain(), timeout)
        except TimeoutError:
            self._events.append(
                f"{len(self._queue)} episodes were still waiting for distillation after {timeout:.0f} s; they stay queued"
            )

    async def merge(self, step: int) -> None:
        """One merge of the bank."""
        assert self._merger is not None
        await self._merger.run(step)

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

    def take_metrics(self) -> Metrics:
        """What happened since the last call, and how things stand (names with ``bank_``, ``queue``, ``buffer``)."""
        counts, self._counts = self._counts, Counter()
        lags, self._lags = self._lags, []
        metrics: Metrics = {name: float(value) for name, value in sorted(counts.items())}
        for judged in ("entries", "won_entries"):
            total = counts[f"judged_{judged}"]
            if total:
                metrics[f"useful_share_{judged}"] = counts[f"useful_{judged}"] / total
        if lags:
            metrics["lag_steps"] = sum(lags) / len(lags)
        if self._merger is not None:
            metrics |= {f"merge_{name}": float(value) for name, value in sorted(self._merger.take_counts().items())}
        metrics |= {f"bank_{name}": float(value) for name, value in self.bank.counts().items()}
        metrics["queue"] = float(len(self._queue))
        metrics["buffer"] = float(len(self.buffer))
        metrics["dropped_stale"] = float(self.buffer.dropped_stale)
        return metrics

    def take_events(self) -> list[str]:
        """What a person should know of, since the last call; among them every episode set aside, with its cause."""
        events, self._events = self._events, []
        return events

    def state_dict(self) -> dict[str, Any]:
        """JSON-able; with the bank's own checkpoint, all there is. Queued episodes are kept whole."""
        return {
            "buffer": self.buffer.state_dict(),
            "rates": self.rates.state_dict(),
            "merger": None if self._merger is None else self._merger.state_dict(),
            "queue": [
                {"trajectory": _trajectory.dump_python(w.trajectory, mode="json"), "attempts": w.attempts} for w in self._queue
            ],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.buffer.load_state_dict(state["buffer"])
        self.rates.load_state_dict(state["rates"])
        if self._merger is not None:
            self._merger.load_state_dict(state["merger"])
        self._queue = [_Waiting(_trajectory.validate_python(item["trajectory"]), item["attempts"]) for item in state["queue"]]

    # --- inside ------------------------------------------------------------------------------------------------------------------

    def _credit(self, trajectories: Sequence[Trajectory], step: int, gate_scores: Mapping[str, float] | None) -> None:
        groups: dict[int, list[Trajectory]] = defaultdict(list)
        for trajectory in trajectories:
            groups[trajectory.group].append(trajectory)
        earned: list[tuple[str, Credit]] = []
        for group in groups.values():
            found = group_credits(group, self._config.credit.rule, gate_scores)
            for entry_id, credit in found.entries.items():
                # All who wrote this very text earned it: crediting the first writer alone starves the extractor, which soon
                # writes little that is new.
                earned += [(writer, credit) for writer in self.bank.writers(entry_id)[-MAX_WRITERS:]]
            earned += found.answers.items()
        credits = mean_credits(earned)
        for generation in self.bank.generations(list(credits)):
            self.buffer.add(generation.id, generation.version, credits[generation.id])
        self.bank.record_credits(step, [(name, credit.value, credit.rollouts) for name, credit in credits.items()])
        self._counts["credits"] += len(credits)
        self._counts["negative_credits"] += sum(credit.value < 0 for credit in credits.values())

    async def _enqueue(self, waiting: _Waiting) -> None:
        async with self._changed:
            if self._worker is not None and len(self._queue) >= self._config.distill.queue_size:
                try:
                    await asyncio.wait_for(self._changed.wait_for(self._has_room), SUBMIT_SECONDS)
                except TimeoutError:
                    raise InfrastructureError(
                        f"an episode waited {SUBMIT_SECONDS:.0f} s for the distillation worker, which has {len(self._queue)} queued; "
                        "raise distill.queue_size, lower distill.per_group, or give the extractor more compute"
                    ) from None
            self._queue.append(waiting)
            self._changed.notify_all()

    def _has_room(self) -> bool:
        return len(self._queue) < self._config.distill.queue_size

    async def _work(self) -> None:
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: bool(self._queue))
            await self._distill_batch()

    async def _distill_batch(self) -> None:
        """Distil the head of the queue. Items leave it only once their operations are in the bank, so a cancelled or crashed call
        loses none."""
        assert self._extractor is not None
        batch = self._queue[: 1 if self._singly else self._config.distill.batch_size]
        try:
            texts = {entry: self.bank.entry(entry).text for w in batch for entry in w.trajectory.entry_ids}
            results = await self._extractor.distill([w.trajectory for w in batch], texts)
        except Exception as error:
            await self._failed(batch, error)
            return
        with self.bank.transaction():
            self.bank.record_generations([result.generation for result in results])
            for result in results:
                self._apply(result)
        await self._leave_queue(len(batch))

    async def _failed(self, batch: list[_Waiting], error: Exception) -> None:
        """A batch that failed is read again one by one, so that one bad episode does not take others with it; an episode out of
        attempts is set aside with its cause."""
        self._counts["retries"] += 1
        if len(batch) > 1:
            self._singly = len(batch)
            return
        batch[0].attempts += 1
        if batch[0].attempts >= self._config.distill.max_attempts:
            self._counts["set_aside"] += 1
            self._events.append(f"episode {batch[0].trajectory.id} was set aside, its distillation failed: {error!r}")
            await self._leave_queue(1)

    async def _leave_queue(self, count: int) -> None:
        async with self._changed:
            del self._queue[:count]
            self._singly = max(0, self._singly - count)
            self._changed.notify_all()

    def _apply(self, result: Distilled) -> None:
        trajectory, generation, parsed = result.trajectory, result.generation, result.parsed
        self._counts["distilled"] += 1
        self._counts["written_tokens"] += len(generation.token_ids)
        self._counts["cut_turns"] += result.cut_turns
        self._counts["repaired"] += parsed.repaired and parsed.parsable
        for name, count in parsed.problems.items():
            self._counts[f"problem_{name}"] += count
        if not parsed.parsable:
            self._credit_directly(result, self._config.credit.unparsable)
        for operation in parsed.operations:
            self._apply_operation(trajectory, generation.id, operation, result)

    def _apply_operation(self, trajectory: Trajectory, generation_id: str, operation: Operation, result: Distilled) -> None:
        self._counts[operation.kind] += 1
        task, step = trajectory.task, trajectory.step
        if operation.kind == "return":
            self.bank.record_return(step=step, generation_id=generation_id)
            self._credit_directly(result, self._config.credit.returned)
            return
        assert operation.text is not None
        write = functools.partial(self.bank.update, operation.targets[0]) if operation.kind == "update" else self.bank.add
        added = write(operation.text, key_text=task.description, scope=task.scope, step=step, generation_id=generation_id)
        self._counts[added.outcome] += 1
        useful = None if self._judge is None else self._judge(task, operation.text)
        if useful is not None:
            for name in ("entries", *(["won_entries"] if trajectory.success else [])):
                self._counts[f"judged_{name}"] += 1
                self._counts[f"useful_{name}"] += useful

    def _credit_directly(self, result: Distilled, value: float | None) -> None:
        if value is not None and self._train_extractor:
            self.buffer.add(result.generation.id, result.generation.version, Credit(value))

    def _measure_lag(self, entry_ids: Sequence[int], step: int) -> None:
        for entry_id in entry_ids:
            entry = self.bank.entry(entry_id)
            if entry.stats.retrieved <= 1:
                self._lags.append(step - entry.created_step)


def select_for_distillation(group: Sequence[Trajectory], limit: int | None) -> list[Trajectory]:
    """At most `limit` episodes of a group: best and worst by turns, so that a small share still holds both outcomes."""
    ranked = sorted(group, key=lambda trajectory: (-trajectory.reward, trajectory.member))
    if limit is None or limit >= len(ranked):
        return list(group)
    best = ranked[: (limit + 1) // 2]
    return best + ranked[len(ranked) - limit // 2 :]
