"""search_and_ask: how a guided actor's question is recognised in its text. Retrieval and answer are the manager's."""

import re

_ASK = re.compile(r"<ask>(.*?)</ask>", re.DOTALL)

NO_ANSWER = "no answer came in time; go on without it"


def parse_question(action: str) -> str | None:
    """The question inside the first ``<ask>…</ask>`` of the actor's text, or None when it is an ordinary action."""
    match = _ASK.search(action)
    question = match.group(1).strip() if match else ""
    return question or None
