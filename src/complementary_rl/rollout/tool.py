"""search_and_ask: how a guided actor asks and is answered. Retrieval and answer are the manager's.

Where the model's chat template has tool calls, the tool is offered, called and answered by its convention; elsewhere by a tag.
"""

import re
from dataclasses import dataclass

from complementary_rl.chat.codec import ChatCodec
from complementary_rl.chat.template import Tool
from complementary_rl.chat.tools import Malformed, ToolFormat, parse_call, schema
from complementary_rl.types import Role

SEARCH_AND_ASK = schema(
    "search_and_ask",
    "Ask someone who has studied earlier attempts at tasks like this one. A few times in an episode; it does not change the environment.",
    {"question": "What you want to know."},
)
NO_ANSWER = "no answer came in time; go on without it"
_ASK = re.compile(r"<ask>(.*?)</ask>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class AskForm:
    """The form of questions and answers: by `format`, or by the tag ``<ask>…</ask>`` where it is None."""

    format: ToolFormat | None = None

    @classmethod
    def of(cls, codec: ChatCodec) -> "AskForm":
        """The form for a model's template."""
        return cls(codec.tool_format(SEARCH_AND_ASK))

    @property
    def tool(self) -> Tool | None:
        """What the template is to offer."""
        return None if self.format is None else SEARCH_AND_ASK

    @property
    def role(self) -> Role:
        """Who answers."""
        return "user" if self.format is None else "tool"

    def question(self, said: str) -> str | Malformed | None:
        """What is asked in what the actor said, or why it cannot be answered; None when it said an ordinary action."""
        if self.format is not None:
            call = parse_call(said, self.format, SEARCH_AND_ASK)
            return call["question"].strip() if isinstance(call, dict) else call
        match = _ASK.search(said)
        return (match.group(1).strip() or None) if match else None
