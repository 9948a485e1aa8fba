"""search_and_ask: how a guided actor's question is recognised in its text. Retrieval and answer are the manager's."""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from complementary_rl.types import Task

_ASK = re.compile(r"<ask>(.*?)</ask>", re.DOTALL)

NO_ANSWER = "no answer came in time; go on without it"


@dataclass(frozen=True, slots=True)
class Question:
    """One search_and_ask call. `id` is unique in the run and becomes the id of the answer's generation."""

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
"""``await ask(questions, step)``: answers in order, None where none came within the time limit."""


def parse_question(action: str) -> str | None:
    """The question inside the first ``<ask>…</ask>`` of the actor's text, or None when it is an ordinary action."""
    match = _ASK.search(action)
    question = match.group(1).strip() if match else ""
    return question or None
