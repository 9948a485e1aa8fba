"""The records of search_and_ask: what a rollout asks the manager, and what it gets."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from complementary_rl.types import Task


@dataclass(frozen=True, slots=True)
class Question:
    """One search_and_ask call. `id` is unique in the run and becomes the id of the answer's generation; `seed` fixes its retrieval."""

    id: str
    task: Task
    question: str
    observation: str
    seed: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The extractor's answer; `generation_id` earns credit like an entry."""

    text: str
    generation_id: str


AskTool = Callable[[Sequence[Question], int], Awaitable[list[Answer | None]]]
"""``await ask(questions, step)``: answers in order, None where none came."""
