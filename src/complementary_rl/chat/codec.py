"""Messages to token ids, token in and token out over many turns.

    open(messages)          extend(sampled, messages)          extend(…)
    ┌───────────────┐       ┌────────────────────────────┐
    system user <gen>  ▒▒▒  [end of turn] user <gen>  ▒▒▒  …            ▒ sampled by the model: kept as ids, never rendered

A prompt is encoded once; every later turn adds the ids of what is new to it. So the ids of a whole episode are exactly
``open + sampled + extend + sampled + …``, and the mask of what the model sampled is known without looking for it.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from complementary_rl.chat.template import ChatTemplate, Run, Slot, Tool, split_slots
from complementary_rl.chat.text import TextEncoder
from complementary_rl.chat.thinking import CLOSING, OPENING, ThinkingTags
from complementary_rl.chat.tools import ToolFormat
from complementary_rl.errors import UserError
from complementary_rl.types import Message, Role, TokenIds

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_Layout = tuple[TokenIds | Run, ...]


class ChatCodec:
    """Turns messages into token ids by the chat template of `tokenizer`, a fast one of transformers.

    Contents are untrusted: whatever they say, they yield ordinary tokens only, and never change what the template renders around
    them. `stop_ids` end an assistant turn: the end-of-turn token of the template, the tokenizer's eos, and those of the model's
    generation config.

    Raises UserError when the tokenizer has no chat template, or one that cannot hold a conversation of user and assistant.
    """

    stop_ids: frozenset[int]
    thinking: ThinkingTags | None
    """None where the tokenizer has no tokens for the tags of thinking."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        if not tokenizer.is_fast:
            raise UserError(
                f"{tokenizer.name_or_path or 'this tokenizer'} has no fast implementation (tokenizer.json), without which "
                "special tokens cannot be kept out of text: convert it with transformers' AutoTokenizer and save it"
            )
        self._template = ChatTemplate(tokenizer)
        self._text = TextEncoder(tokenizer)
        self._backend = tokenizer.backend_tokenizer
        self._layouts: dict[tuple[tuple[Role, ...], str], _Layout] = {}
        self._extensions: dict[tuple[tuple[Role, ...], str], tuple[_Layout, int]] = {}
        self._end_of_turn = self._find_end_of_turn()
        self._takes_system = self._find_system_support()
        ends = {self._end_of_turn, tokenizer.eos_token_id} | _configured_stops(tokenizer.name_or_path)
        self.stop_ids = frozenset(id for id in ends if id is not None)
        self.thinking = self._find_thinking()

    @property
    def structural_ids(self) -> frozenset[int]:
        """Special and added token ids: only the template and the model itself can produce them, no content can."""
        return self._text.structural

    def open(self, messages: Sequence[Message], tool: Tool | None = None) -> TokenIds:
        """Ids of a conversation's first prompt, from the template's beginning-of-text to its generation prompt; with `tool`, which must
        have a `tool_format`, the template offers it.

        A system message that the template does not take is put before the first user message. Raises UserError when the template
        refuses the order of the roles.
        """
        if not self._takes_system:
            messages = _fold_system(messages)
        roles = tuple(message.role for message in messages)
        key = roles, json.dumps(tool)
        if key not in self._layouts:
            self._layouts[key] = self._compile(self._template.slots(roles, generation_prompt=True, tool=tool))
        return self._fill(self._layouts[key], [message.content for message in messages])

    def extend(self, sampled: Sequence[int], messages: Sequence[Message], tool: Tool | None = None) -> TokenIds:
        """Ids to append after an assistant turn, so that ``prompt + sampled + extend(sampled, messages)`` is the next prompt.

        They are the closing of that turn, without the end-of-turn token if `sampled` ends with it, then the messages and the
        generation prompt. A turn that was cut off (stop reason "length"), or ended with another stop token, is closed here. A message of
        role "tool" answers a call of `tool`.
        """
        roles = tuple(message.role for message in messages)
        key = roles, json.dumps(tool)
        if key not in self._extensions:
            # What the template writes behind an assistant's content is what any conversation ending in one goes on with.
            text = self._template.slots(("user", "assistant", *roles), generation_prompt=True, after=1, tool=tool)
            layout = self._compile(text)
            self._extensions[key] = (layout, self._closing_length(layout))
        layout, closing = self._extensions[key]
        ids = self._fill(layout, ["", "", *(message.content for message in messages)])
        return ids[closing:] if sampled and sampled[-1] == self._end_of_turn else ids

    def tool_format(self, tool: Tool) -> ToolFormat | None:
        """How the model is to call `tool`; None when its template offers no tools, writes calls in a way that is not known, or cannot
        render the answer."""
        format = self._template.tool_format(tool)
        if format is not None:
            try:
                self.extend((), [Message("tool", "")], tool)
            except UserError:
                return None
        return format

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of a generation, without the stop token it may end with. Special tokens elsewhere show as their text."""
        ids = list(token_ids)
        if ids and ids[-1] in self.stop_ids:
            ids.pop()
        text: str = self._backend.decode(ids, skip_special_tokens=False)
        return text

    def drops_thinking(self, role: Role) -> bool:
        """Whether the template leaves out the thinking of earlier turns when a message of `role` follows them (Qwen3: "user", not
        "tool").

        Raises UserError when it does, but with tags that are no tokens: then it cannot be cut out of what was sampled.
        """
        thought = f"{OPENING}\nB\n{CLOSING}\n\nC"
        drops = "B" not in self._template.render([("user", "A"), ("assistant", thought), (role, "D")], generation_prompt=True)
        if drops and self.thinking is None:
            raise UserError(
                f"the chat template of {self._template.name} drops the thinking of earlier turns, but its tokenizer has no tokens "
                f"{OPENING} and {CLOSING} to cut it out by: set actor.earlier_thinking to 'keep'"
            )
        return drops

    def shortened(self, text: str, limit: int) -> str:
        """`text`, or if it has more than `limit` tokens its first and last so many, with a mark of a few tokens between."""
        return self._text.shortened(text, limit)

    def check_prefix_stability(self) -> tuple[str, ...]:
        """What the template would rewrite if earlier turns were rendered again, in words; empty when it rewrites nothing.

        Here nothing is rendered again, so what is sampled and trained is consistent either way. But where a template drops the
        thinking of earlier turns (Qwen3), our prompts keep it unless `actor.earlier_thinking` says otherwise: they grow longer and
        differ from what such a model was taught on.
        """
        findings = []
        for label, reply in (("a plain reply", "B"), ("a reply that thinks first", "<think>\nB\n</think>\n\nC")):
            turns: list[tuple[Role, str]] = [("user", "A"), ("assistant", reply)]
            finished = self._template.render(turns, generation_prompt=False)
            if not finished.startswith(self._template.render(turns[:1], generation_prompt=True)):
                findings.append(f"{label} is not rendered as the continuation of the prompt it answers")
            if not self._template.render([*turns, ("user", "D")], generation_prompt=True).startswith(finished):
                findings.append(f"{label} is rendered differently once a message follows it")
        return tuple(findings)

    def _compile(self, text: str) -> _Layout:
        """Cut the template's text at its structural tokens and encode whatever does not depend on contents."""
        layout: list[TokenIds | Run] = []
        fixed: list[int] = []
        run: list[str | Slot] = []
        pieces = [piece for part in split_slots(text) for piece in ([part] if isinstance(part, Slot) else self._text.split(part))]
        for piece in [*pieces, None]:
            if isinstance(piece, str | Slot):
                run.append(piece)
                continue
            if any(isinstance(part, Slot) for part in run):
                layout += [tuple(fixed), Run.of(run)]
                fixed = []
            else:
                fixed += self._text.encode("".join(part for part in run if isinstance(part, str)))
            run = []
            if piece is not None:
                fixed.append(piece)
        return (*layout, tuple(fixed))

    def _fill(self, layout: _Layout, contents: Sequence[str]) -> TokenIds:
        ids: list[int] = []
        for part in layout:
            # The template's words around a content are encoded with it, as the tokenizer itself would do.
            ids += part if isinstance(part, tuple) else self._text.encode(part.fill(contents))
        return tuple(ids)

    def _find_end_of_turn(self) -> int | None:
        closing = self._template.slots(("user", "assistant"), generation_prompt=False, after=1)
        for piece in self._text.split(closing):
            if isinstance(piece, int):
                return piece
            if piece.strip():
                break
        return None

    def _find_thinking(self) -> ThinkingTags | None:
        tags = self._backend.token_to_id(OPENING), self._backend.token_to_id(CLOSING)
        if not self.structural_ids.issuperset(tags):
            return None
        bare, prompted = (self._template.slots(("user",), generation_prompt=prompt, after=0) for prompt in (False, True))
        (prompt,) = self._compile(prompted.removeprefix(bare))
        assert isinstance(prompt, tuple)
        return ThinkingTags(*tags, prompt, self.stop_ids, lambda id: not self._backend.decode([id]).strip("\n"))

    def _closing_length(self, layout: _Layout) -> int:
        """How many ids of an extension the model has sampled already when it ended its turn itself."""
        closing = layout[0]
        assert isinstance(closing, tuple)
        return closing.index(self._end_of_turn) + 1 if self._end_of_turn in closing else 0

    def _find_system_support(self) -> bool:
        try:
            self._template.slots(("system", "user"), generation_prompt=True)
        except UserError:
            return False
        return True


def _fold_system(messages: Sequence[Message]) -> Sequence[Message]:
    if len(messages) < 2 or messages[0].role != "system" or messages[1].role != "user":
        return messages
    return [Message("user", f"{messages[0].content}\n\n{messages[1].content}"), *messages[2:]]


def _configured_stops(name_or_path: str) -> set[int]:
    if not name_or_path:
        return set()
    from transformers import GenerationConfig

    try:
        eos = GenerationConfig.from_pretrained(name_or_path, local_files_only=True).eos_token_id
    except OSError:  # a model need not have one
        return set()
    return set() if eos is None else {eos} if isinstance(eos, int) else set(eos)
