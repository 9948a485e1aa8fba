"""Distillation: episodes wait in a queue, the extractor reads them in batches, its operations change the bank.

    submit ──→ queue ──→ extractor (one batched call) ──→ operations ──→ bank, in one transaction ──→ queue lets go
                 ↑                    │ fails
                 └── read alone ──────┘                after `max_attempts` set aside, with the cause

What fails is the *reading* (the engine raised, the prompt does not fit). An answer that cannot be parsed is no failure: it is recorded,
credited as the configuration says, and counted.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from complementary_rl.config import DistillConfig
from complementary_rl.errors import InfrastructureError, UserError
from complementary_rl.experience.bank import Added, Bank
from complementary_rl.experience.crediting import Output, all_refused
from complementary_rl.experience.distillation_queue import DistillationQueue, Waiting
from complementary_rl.experience.extractor import Distilled, Extractor, TooLong
from complementary_rl.experience.tally import Tally
from complementary_rl.experience.transcript import Transcript
from complementary_rl.experience.waiting import EXTRACTOR_SECONDS, watched
from complementary_rl.types import Generation, Operation, Task

Judge = Callable[[Task, str], bool | None]
"""Whether a text is true and useful for a task, where that can be known. For metrics only."""

GIVE_UP_AFTER = 16
"""Episodes set aside in a row before the run stops: by then it is not the episodes."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """An episode the extractor could not be made to read."""

    episode_id: str
    task_id: str
    step: int
    cause: str


class Distiller:
    """Reads the queue. Only one caller at a time may be in `read_batch`.

    `credit` is called with (generation, "unparsable" | "returned" | "refused", step) for answers that wrote nothing, once they are in
    the bank.
    """

    def __init__(
        self,
        bank: Bank,
        extractor: Extractor,
        config: DistillConfig,
        tally: Tally,
        *,
        credit: Callable[[Generation, Output, int], None],
        judge: Judge | None,
    ) -> None:
        self.queue = DistillationQueue(config.queue_size)
        self.set_aside: list[SetAside] = []
        self._bank = bank
        self._extractor = extractor
        self._config = config
        self._tally = tally
        self._credit = credit
        self._judge = judge
        self._set_aside_in_a_row = 0

    async def read_batch(self) -> None:
        """Distil the head of the queue, which must not be empty.

        Raises InfrastructureError when the extractor hangs, or fails episode after episode.
        """
        head = self.queue.head(self._config.batch_size)
        transcripts = [waiting.transcript for waiting in head]
        try:
            texts = {entry: self._bank.entry(entry).text for transcript in transcripts for entry in transcript.entry_ids}
            results = await watched(
                self._extractor.distill(transcripts, texts),
                who="distillation",
                what=f"the extractor to read {len(head)} episodes ({len(self.queue)} are queued)",
                limit=EXTRACTOR_SECONDS,
            )
            with self._bank.transaction():
                self._bank.record_generations([result.generation for result in results if isinstance(result, Distilled)])
                done = [self._apply(result) if isinstance(result, Distilled) else [] for result in results]
        except (InfrastructureError, UserError):
            raise
        except Exception as error:
            self._failed(head, error)
            return
        self.queue.let_go(head)
        for result, taken in zip(results, done, strict=True):
            if isinstance(result, TooLong):
                self._put_aside(result.transcript, str(result))
            else:
                self._set_aside_in_a_row = 0
                self._count(result, taken)
                self._credit_output(result, taken)

    def state_dict(self) -> dict[str, Any]:
        return {"queue": self.queue.state_dict(), "set_aside": [asdict(item) for item in self.set_aside]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.queue.load_state_dict(state["queue"])
        self.set_aside = [SetAside(**item) for item in state["set_aside"]]

    def _failed(self, head: Sequence[Waiting], error: Exception) -> None:
        """A batch that failed is read again one by one, so that one bad episode does not take others with it."""
        self._tally.count("retries")
        if len(head) > 1:
            for waiting in head:
                waiting.alone = True
            return
        waiting = head[0]
        waiting.alone = True
        waiting.attempts += 1
        if waiting.attempts >= self._config.max_attempts:
            self.queue.let_go(head)
            self._put_aside(waiting.transcript, f"{type(error).__name__}: {error}", error)

    def _put_aside(self, transcript: Transcript, cause: str, error: Exception | None = None) -> None:
        self.set_aside.append(SetAside(transcript.id, transcript.task.id, transcript.step, cause))
        self._tally.count("set_aside")
        self._tally.tell(f"episode {transcript.id} was set aside, the extractor could not read it: {cause}")
        self._set_aside_in_a_row += 1
        if self._set_aside_in_a_row >= GIVE_UP_AFTER:
            raise InfrastructureError(
                f"the extractor could not read {self._set_aside_in_a_row} episodes in a row; the last: {cause}. What was "
                "distilled before is kept: remove the cause and go on, a run with --resume"
            ) from error

    def _apply(self, result: Distilled) -> list[Added]:
        """What became of each text."""
        added = [self._apply_operation(operation, result) for operation in result.parsed.operations]
        return [one for one in added if one is not None]

    def _apply_operation(self, operation: Operation, result: Distilled) -> Added | None:
        task, step, generation_id = result.transcript.task, result.transcript.step, result.generation.id
        if operation.kind == "return":
            self._bank.record_return(step=step, generation_id=generation_id)
            return None
        assert operation.text is not None
        if operation.kind == "update":
            return self._bank.update(
                operation.targets[0],
                operation.text,
                key_text=task.description,
                scope=task.scope,
                step=step,
                generation_id=generation_id,
            )
        return self._bank.add(operation.text, key_text=task.description, scope=task.scope, step=step, generation_id=generation_id)

    def _credit_output(self, result: Distilled, taken: Sequence[Added]) -> None:
        if not result.parsed.parsable:
            self._credit(result.generation, "unparsable", result.transcript.step)
        elif any(operation.kind == "return" for operation in result.parsed.operations):
            self._credit(result.generation, "returned", result.transcript.step)
        elif all_refused(taken):
            self._credit(result.generation, "refused", result.transcript.step)

    def _count(self, result: Distilled, taken: Sequence[Added]) -> None:
        transcript, parsed = result.transcript, result.parsed
        self._tally.count("distilled")
        self._tally.count("written_tokens", len(result.generation.token_ids))
        self._tally.count("cut_turns", result.cut_turns)
        self._tally.count("shortened", result.shortened)
        self._tally.count("repaired", parsed.repaired)
        self._tally.count("unparsable", not parsed.parsable)
        self._tally.observe("well_formed_answers", parsed.well_formed)
        for reason, number in parsed.problems.items():
            self._tally.count(f"problem_{reason}", number)
            self._tally.count("dropped_operations", number)
        for added in taken:
            self._tally.count(added.outcome)
            if added.cause is not None:
                self._tally.count(f"refused_{added.cause}")
        self._tally.count("refused_answers", all_refused(taken))
        for operation in parsed.operations:
            self._tally.count(operation.kind)
            if operation.text is not None:
                self._tally.observe("entry_chars", len(operation.text))
                self._count_useful(transcript, operation.text)

    def _count_useful(self, transcript: Transcript, text: str) -> None:
        useful = None if self._judge is None else self._judge(transcript.task, text)
        if useful is None:
            return
        for name in ("entries", "won_entries") if transcript.success else ("entries",):
            self._tally.count(f"judged_{name}")
            self._tally.count(f"useful_{name}", useful)
            self._tally.observe(f"useful_share_{name}", useful)
