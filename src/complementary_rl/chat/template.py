"""A model's chat template, rendered with slots in the place of message contents.

    user, assistant, user  ──template──►  "<|im_start|>user\n" Slot 0 "<|im_end|>\n<|im_start|>assistant\n" Slot 1 …

The template never sees a content, so no content can change what it does; and what it renders depends on the roles alone, so it
is rendered once for each sequence of roles.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from complementary_rl.chat.tools import ToolFormat, detect_format
from complementary_rl.errors import UserError
from complementary_rl.types import Role

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Private-use characters stand for a slot; the em space on either side of it shows whether the template trims contents.
_PAD = "\u2003"
_SLOT = re.compile(f"({_PAD}?)\ue000(\\d+)\ue001({_PAD}?)")
_DATE_CALL = re.compile(r"strftime_now\(\s*(['\"])(.*?)\1\s*\)")
_DATE = date(2024, 7, 26)
_CALL_ID = "000000000"

Tool = Mapping[str, Any]
"""The schema of a function, as `complementary_rl.chat.tools.schema` makes it."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Where the content of message `index` goes, and whether the template trims it on that side."""

    index: int
    trim_left: bool
    trim_right: bool

    def fill(self, content: str) -> str:
        if self.trim_left:
            content = content.lstrip()
        return content.rstrip() if self.trim_right else content


@dataclass(frozen=True, slots=True)
class Run:
    """Text between two structural tokens of the template: its own words and at least one slot.

    Templates from before chat tokens (Llama 2, Vicuna) tell turns apart by words such as ``[/INST]``, and others close a tool's answer by
    one. Words that stand behind a content, with no structural token between, are `markers`: in contents they are broken by a zero-width
    space.
    """

    parts: tuple[str | Slot, ...]
    markers: tuple[str, ...]

    @classmethod
    def of(cls, parts: Sequence[str | Slot]) -> "Run":
        """A run of `parts`."""
        first = next(position for position, part in enumerate(parts) if isinstance(part, Slot))
        lines = {line.strip() for part in parts[first:] if isinstance(part, str) for line in part.splitlines()}
        return cls(tuple(parts), tuple(sorted(line for line in lines if len(line) > 1)))

    def fill(self, contents: Sequence[str]) -> str:
        """The text of the run; slot i takes ``contents[i]``."""
        return "".join(part if isinstance(part, str) else self._defused(part.fill(contents[part.index])) for part in self.parts)

    def _defused(self, content: str) -> str:
        for marker in self.markers:
            content = content.replace(marker, f"{marker[0]}\u200b{marker[1:]}")
        return content


class ChatTemplate:
    """The chat template of a tokenizer. Raises UserError when it has none."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        self._tokenizer = tokenizer
        self.name = tokenizer.name_or_path or "this tokenizer"
        if not tokenizer.chat_template:
            raise UserError(
                f"{self.name} has no chat template, so messages cannot become tokens: use the instruct variant of the model, or "
                "put a chat_template.jinja into the tokenizer's folder"
            )
        try:
            source = tokenizer.get_chat_template()
        except ValueError as error:
            raise UserError(f"{self.name} has several chat templates and none is the default: name one 'default'") from error
        # Some templates write today's date; a run that is resumed on another day must render what it rendered before.
        self._source = _DATE_CALL.sub(lambda call: repr(_DATE.strftime(call[2])), source)

    def render(self, messages: Sequence[tuple[Role, str]], generation_prompt: bool, tool: Tool | None = None) -> str:
        """The template's text for (role, content) pairs, offering `tool`. Raises UserError when it refuses them."""
        try:
            return self._apply([_as_template_takes_it(role, content, tool) for role, content in messages], generation_prompt, tool)
        except (TemplateError, TypeError, ValueError) as error:
            raise UserError(
                f"the chat template of {self.name} refuses the roles {[role for role, _ in messages]}: {error}; put a template "
                "that takes them into chat_template.jinja in the tokenizer's folder"
            ) from error

    def tool_format(self, tool: Tool) -> ToolFormat | None:
        """How the template writes calls of `tool`; None when it does not offer tools, or writes calls in a way that is not known."""
        name, marker = tool["function"]["name"], "\ue002"
        function = {"name": name, "arguments": dict.fromkeys(tool["function"]["parameters"]["required"], marker)}
        calls = [{"id": _CALL_ID, "type": "function", "function": function}]
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": "\ue003"},
            {"role": "assistant", "content": "", "tool_calls": calls},
        ]
        try:
            offered = self._apply(messages[:1], True, tool)
            text = self._apply(messages, False, tool)
        except (TemplateError, TypeError, ValueError):  # it takes no tool, or wants it otherwise
            return None
        return detect_format(text.rpartition("\ue003")[2], tool, marker) if name in offered else None

    def _apply(self, messages: list[dict[str, Any]], generation_prompt: bool, tool: Tool | None) -> str:
        text = self._tokenizer.apply_chat_template(
            messages,
            tools=None if tool is None else [dict(tool)],
            chat_template=self._source,
            tokenize=False,
            add_generation_prompt=generation_prompt,
        )
        assert isinstance(text, str)
        return text

    def slots(self, roles: Sequence[Role], generation_prompt: bool, after: int | None = None, tool: Tool | None = None) -> str:
        """The template's text with slots, for `split_slots`; with `after` only what follows the slot of that message.

        Raises UserError when a content would be left out, repeated or moved: the template is not one that can be used.
        """
        messages = [(role, f"{_PAD}\ue000{index}\ue001{_PAD}") for index, role in enumerate(roles)]
        text = self.render(messages, generation_prompt, tool)
        first = 0
        if after is not None:
            first = after + 1
            matches = [match for match in _SLOT.finditer(text) if int(match[2]) == after]
            if len(matches) != 1:
                raise UserError(self._unusable(roles))
            text = text[matches[0].end() :]
        if [int(match[2]) for match in _SLOT.finditer(text)] != list(range(first, len(roles))):
            raise UserError(self._unusable(roles))
        return text

    def _unusable(self, roles: Sequence[Role]) -> str:
        return (
            f"the chat template of {self.name} does not render each message of {list(roles)} once and in order: put a template "
            "that does into chat_template.jinja in the tokenizer's folder"
        )


def _as_template_takes_it(role: Role, content: str, tool: Tool | None) -> dict[str, Any]:
    message = {"role": role, "content": content}
    # Mistral's templates want to know which call is answered.
    return message | {"tool_call_id": _CALL_ID, "name": tool["function"]["name"]} if role == "tool" and tool else message


def split_slots(text: str) -> list[str | Slot]:
    """Cut the text of `ChatTemplate.slots` into what the template wrote and the slots."""
    parts: list[str | Slot] = []
    position = 0
    for match in _SLOT.finditer(text):
        if match.start() > position:
            parts.append(text[position : match.start()])
        parts.append(Slot(int(match[2]), trim_left=not match[1], trim_right=not match[3]))
        position = match.end()
    if position < len(text):
        parts.append(text[position:])
    return parts
