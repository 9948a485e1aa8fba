"""Transcripts of agents in OpenAI's chat format, one JSON value a line, read as what the extractor reads.

    {"messages": [...], "goal": "…", "scope": "…", "reward": 1.0, "success": true, "id": "…"}       all but messages may be absent
    [...]                                                                                           messages alone

What the user and the tools say between two messages of the assistant is an observation, what the assistant says and calls is an action.
A line that cannot be read is given back with the reason, never passed over. See docs/transcripts.md for the rules.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from complementary_rl.errors import UserError
from complementary_rl.experience import json_line
from complementary_rl.experience.records import storable
from complementary_rl.experience.transcript import Transcript
from complementary_rl.types import Task

LONGEST_ID = 200
"""Characters of a transcript's id."""

ChatRole = Literal["system", "developer", "user", "assistant", "tool", "function"]
_ROLES = get_args(ChatRole)
_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""Types of content parts that are text, and the key that holds it."""


@dataclass(frozen=True, slots=True)
class ReadLine:
    """A line that was read. `scoped` tells whether it names its scope; `unread_parts` counts content that is no text, by type."""

    number: int
    transcript: Transcript
    scoped: bool
    unread_parts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RefusedLine:
    """A line that gives no transcript, and why."""

    number: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.number}: {self.reason}"


class _Refused(Exception):
    """A line that cannot be used; the argument is the reason."""


def read_chat_traces(source: Path, *, default_scope: str) -> Iterator[ReadLine | RefusedLine]:
    """The transcripts of a file, in order; blank lines are passed over. `default_scope` is where those that name no scope are filed.

    Raises UserError when the file cannot be read.
    """
    seen: dict[str, int] = {}
    try:
        with source.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                read = read_line(line, number, default_scope=default_scope)
                if isinstance(read, ReadLine):
                    first = seen.setdefault(read.transcript.id, number)
                    if first != number:
                        read = RefusedLine(number, f"the same transcript as line {first} (id {read.transcript.id!r})")
                yield read
    except OSError as error:
        raise UserError(f"{source} cannot be read ({error.strerror}); give a JSONL file") from error


def read_line(line: bytes, number: int = 1, *, default_scope: str = "default") -> ReadLine | RefusedLine:
    """One line. Never raises, whatever it holds."""
    try:
        return _Line(number, line, default_scope).read()
    except (_Refused, json_line.NotJson) as reason:
        return RefusedLine(number, str(reason))
    except RecursionError:
        return RefusedLine(number, "nested too deeply")


class _Line:
    def __init__(self, number: int, line: bytes, default_scope: str) -> None:
        value = json_line.parse(line)
        self._number = number
        self._line = line
        self._fields: dict[str, Any] = {"messages": value} if isinstance(value, list) else value
        self._default_scope = default_scope
        self._unread: Counter[str] = Counter()
        self._tools: dict[str, str] = {}

    def read(self) -> ReadLine:
        if not isinstance(self._fields, dict):
            raise _Refused("neither an object with messages nor a list of messages")
        messages = self._fields.get("messages")
        if not isinstance(messages, list) or not messages:
            raise _Refused("no messages: a list of chat messages is needed under that name")
        said = [self._message(message, position) for position, message in enumerate(messages, start=1)]
        instructions, turns, final = _turns(said)
        if not turns:
            raise _Refused("no message of the assistant: nothing was done")
        goal = self._one_of("goal", "task")
        scope = self._one_of("scope") or self._one_of("env")
        if goal is None:
            goal = next((text for role, text in said if role == "user" and text.strip()), None)
            if goal is None:
                raise _Refused("no goal: give one under that name, or a message of the user")
        opening, action = turns[0]
        if opening.startswith(goal):  # agents are often given it together with what they see first; it is told once
            turns[0] = (opening[len(goal) :].lstrip(), action)
        identity = self._id()
        success, reward = self._outcome()
        task = Task(
            id=identity,
            env=self._one_of("env") or scope or self._default_scope,
            description=goal.strip(),
            seed=0,
            scope=scope or self._default_scope,
        )
        transcript = Transcript(identity, task, 0, tuple(turns), final, success, reward, instructions=instructions)
        return ReadLine(self._number, transcript, scope is not None, dict(self._unread))

    def _one_of(self, *names: str) -> str | None:
        given = {name: self._fields[name] for name in names if self._fields.get(name) is not None}
        for name, value in given.items():
            if not isinstance(value, str) or not value.strip():
                raise _Refused(f"{name} must be a text that is not empty")
        if len(set(given.values())) > 1:
            raise _Refused(f"{' and '.join(given)} say different things; give one of them")
        return next((storable(value) for value in given.values()), None)

    def _id(self) -> str:
        given = self._fields.get("id")
        if given is None:
            return hashlib.blake2b(self._line.strip(), digest_size=8).hexdigest()
        if isinstance(given, bool) or not isinstance(given, str | int) or not 0 < len(str(given)) <= LONGEST_ID:
            raise _Refused(f"id must be a number or a text of at most {LONGEST_ID} characters")
        return storable(str(given))

    def _outcome(self) -> tuple[bool | None, float | None]:
        success, reward = self._fields.get("success"), self._fields.get("reward")
        if success is not None and not isinstance(success, bool):
            raise _Refused("success must be true or false")
        if reward is None:
            return success, None
        if isinstance(reward, bool) or not isinstance(reward, int | float):
            raise _Refused("reward must be a number")
        try:
            value = float(reward)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            raise _Refused("reward must be a finite number")
        return (value > 0 if success is None else success), value

    def _message(self, message: Any, position: int) -> tuple[ChatRole, str]:
        """Role and text of a message."""
        where = f"message {position}"
        if not isinstance(message, dict):
            raise _Refused(f"{where} is not an object with role and content")
        role = message.get("role")
        if role not in _ROLES:
            raise _Refused(f"{where} has the role {_shown(role)}; the roles are {', '.join(_ROLES)}")
        text = self._content(message.get("content"), where)
        if role == "assistant":
            refusal = message.get("refusal")
            calls = [self._call(call, where) for call in _calls(message, where)]
            return "assistant", "\n".join(part for part in (text, refusal if isinstance(refusal, str) else "", *calls) if part)
        if role in ("tool", "function"):
            call_id = message.get("tool_call_id")
            name = message.get("name") or (self._tools.get(call_id) if isinstance(call_id, str) else None)
            return "tool", f"{name}: {text}" if isinstance(name, str) else text
        return cast(ChatRole, role), text

    def _content(self, content: Any, where: str) -> str:
        if content is None:
            return ""
        if isinstance(content, str):
            return content
        if not isinstance(content, list):
            raise _Refused(f"the content of {where} is neither a text nor a list of parts")
        texts = []
        for part in content:
            kind = part.get("type") if isinstance(part, dict) else None
            if not isinstance(kind, str):
                raise _Refused(f"the content of {where} has a part without a type")
            text = part.get(_TEXT_PARTS.get(kind, ""))
            if isinstance(text, str):
                texts.append(text)
            else:
                self._unread[kind] += 1
                texts.append(f"[{kind}]")
        return "\n".join(texts)

    def _call(self, call: Any, where: str) -> str:
        function = call.get("function") if isinstance(call, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(function, dict) or not isinstance(name, str):
            raise _Refused(f"{where} has a tool call without a function's name")
        if isinstance(call.get("id"), str):
            self._tools[call["id"]] = name
        arguments = function.get("arguments")
        if not isinstance(arguments, str):
            arguments = "" if arguments is None else json.dumps(arguments, ensure_ascii=False)
        return f"{name}({arguments})"


def _calls(message: dict[str, Any], where: str) -> list[Any]:
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise _Refused(f"tool_calls of {where} must be a list")
    legacy = message.get("function_call")
    return calls if legacy is None else [*calls, {"function": legacy}]


def _turns(said: list[tuple[ChatRole, str]]) -> tuple[str, list[tuple[str, str]], str]:
    """The instructions (what the system says before anybody else does), the turns, and the observation that nobody answered."""
    rest = next((i for i, (role, _) in enumerate(said) if role not in ("system", "developer")), len(said))
    turns: list[tuple[str, str]] = []
    heard: list[str] = []
    answered = False
    for role, text in said[rest:]:
        if role != "assistant":
            heard.append(text)
        elif answered and not heard:
            turns[-1] = (turns[-1][0], f"{turns[-1][1]}\n{text}")
        else:
            turns.append(("\n".join(heard), text))
            heard = []
        answered = role == "assistant"
    return "\n\n".join(text for _, text in said[:rest]), turns, "\n".join(heard)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
