"""Transcripts in chat format: what is made of them, and that nothing in them is passed over or breaks the reader."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from complementary_rl.errors import UserError
from complementary_rl.experience.chat_traces import LONGEST_ID, ReadLine, RefusedLine, read_chat_traces, read_line
from complementary_rl.types import Task
from tests.helpers.traces import SERVICE, walk, write_traces

GO = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "gone"}]


def read(value: Any) -> ReadLine:
    line = read_line(json.dumps(value).encode())
    assert isinstance(line, ReadLine), line
    return line


def refused(value: Any) -> str:
    line = read_line(value if isinstance(value, bytes) else json.dumps(value).encode())
    assert isinstance(line, RefusedLine)
    return line.reason


def test_a_walk_becomes_the_turns_of_an_episode() -> None:
    line = read(walk("Find the exit of the Amber Gallery.", scope="rooms/amber", env="rooms", reward=0.5))
    transcript = line.transcript
    assert transcript.task == Task("walk-0", "rooms", "Find the exit of the Amber Gallery.", 0, scope="rooms/amber")
    assert transcript.turns == (("at 3 9", "north"), ("at 3 8", "north"), ("at 3 7", "west"), ("at 2 7", "north"))
    assert (transcript.final_observation, transcript.success, transcript.reward) == ("at 2 6, out", True, 0.5)
    assert (line.scoped, line.unread_parts, transcript.instructions, transcript.entry_ids) == (True, {}, "", ())


def test_a_conversation_with_tools_becomes_observations_and_actions() -> None:
    line = read(SERVICE)
    transcript = line.transcript
    assert transcript.task == Task("order-17", "shop", "I want my money back for order A17.", 0, scope="shop")
    assert transcript.instructions == "You are the support of a shop.\n\nRefund within 30 days."
    assert transcript.turns == (
        ("", 'get_order({"order": "A17"})\nget_rules({})'),
        ('get_order: {"bought": "12 days ago"}\nget_rules: 30 days', 'You get it back.\nrefund({"order": "A17"})'),
        ("refund: done", "It is on its way."),
    )
    assert transcript.final_observation == "Thanks!\n[image_url]"
    assert line.unread_parts == {"image_url": 1}
    assert (transcript.success, transcript.reward) == (True, None)


def test_older_calls_of_functions_are_read_too() -> None:
    call = {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}}
    messages = [
        GO[0],
        call,
        {"role": "function", "name": "look", "content": "dark"},
        {"role": "assistant", "refusal": "I will not"},
    ]
    assert read(messages).transcript.turns == (("", "look({})"), ("look: dark", "I will not"))


@pytest.mark.parametrize(
    ("given_fields", "success", "reward"),
    [
        ({}, None, None),
        ({"reward": 0}, False, 0.0),
        ({"reward": -1}, False, -1.0),
        ({"reward": 0.25}, True, 0.25),
        ({"reward": 0.25, "success": False}, False, 0.25),
        ({"success": True}, True, None),
        ({"success": None, "reward": None}, None, None),
    ],
)
def test_the_outcome_is_what_is_said_or_unknown(given_fields: dict[str, Any], success: bool | None, reward: float | None) -> None:
    transcript = read({"messages": GO, **given_fields}).transcript
    assert (transcript.success, transcript.reward) == (success, reward)


def test_a_bare_list_has_an_id_of_its_own_content() -> None:
    one, same, other = read(GO), read(GO), read([*GO, GO[0]])
    assert one.transcript.id == same.transcript.id != other.transcript.id
    assert (one.transcript.task.description, one.transcript.task.scope, one.scoped) == ("go", "default", False)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (3, "neither an object with messages nor a list"),
        ({}, "no messages"),
        ([], "no messages"),
        ({"messages": "hello"}, "no messages"),
        ([GO[0]], "no message of the assistant"),
        ([GO[1]], "no goal"),
        (["go"], "message 1 is not an object"),
        ([{"role": "robot", "content": "x"}], "message 1 has the role 'robot'; the roles are system, developer"),
        ([{"role": ["user"], "content": "x"}], "message 1 has the role"),
        ([{"role": "user", "content": 4}], "the content of message 1 is neither"),
        ([{"role": "user", "content": [{"text": "x"}]}], "the content of message 1 has a part without a type"),
        ([GO[0], {"role": "assistant", "tool_calls": [{}]}], "message 2 has a tool call without a function's name"),
        ([GO[0], {"role": "assistant", "tool_calls": "look"}], "tool_calls of message 2"),
        ({"messages": GO, "goal": " "}, "goal must be a text"),
        ({"messages": GO, "goal": "a", "task": "b"}, "goal and task say different things"),
        ({"messages": GO, "scope": 3}, "scope must be a text"),
        ({"messages": GO, "success": 1}, "success must be true or false"),
        ({"messages": GO, "reward": "1"}, "reward must be a number"),
        ({"messages": GO, "reward": True}, "reward must be a number"),
        ({"messages": GO, "reward": 10**400}, "reward must be a finite number"),
        ({"messages": GO, "reward": float("nan")}, "reward must be a finite number"),
        ({"messages": GO, "id": "x" * (LONGEST_ID + 1)}, "id must be"),
        ({"messages": GO, "id": True}, "id must be"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(line: Any, reason: str) -> None:
    assert reason in refused(line)


def test_every_line_of_a_file_is_accounted_for(tmp_path: Path) -> None:
    path = write_traces(
        tmp_path / "traces.jsonl", [b"\xef\xbb\xbf" + json.dumps(SERVICE).encode(), b"  ", b"nonsense", GO, SERVICE]
    )
    lines = list(read_chat_traces(path, default_scope="old logs"))
    assert [(line.number, type(line)) for line in lines] == [(1, ReadLine), (3, RefusedLine), (4, ReadLine), (5, RefusedLine)]
    assert str(lines[3]) == "line 5: the same transcript as line 1 (id 'order-17')"
    assert isinstance(lines[2], ReadLine)
    assert lines[2].transcript.task.scope == "old logs"
    with pytest.raises(UserError, match="cannot be read"):
        list(read_chat_traces(tmp_path / "nowhere.jsonl", default_scope="x"))


def test_the_example_of_the_documentation_is_read() -> None:
    page = (Path(__file__).parents[2] / "docs" / "transcripts.md").read_text(encoding="utf-8")
    example = re.search(r"```json\n(.*?)```", page, re.DOTALL)
    assert example is not None
    lines = [read_line(line.encode()) for line in example[1].splitlines()]
    assert [line.transcript.success for line in lines if isinstance(line, ReadLine)] == [True, True, None]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
PARTS = st.fixed_dictionaries({}, optional={"type": st.sampled_from(["text", "image_url", "refusal"]) | VALUES, "text": VALUES})
CALLS = st.fixed_dictionaries({}, optional={"id": VALUES, "function": st.fixed_dictionaries({"name": VALUES, "arguments": VALUES})})
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool"]) | VALUES},
    optional={
        "content": st.text(max_size=8) | st.lists(PARTS, max_size=2) | VALUES,
        "tool_calls": st.lists(CALLS, max_size=2) | VALUES,
        "tool_call_id": VALUES,
        "name": VALUES,
    },
)
NAMES = ("goal", "task", "env", "scope", "reward", "success", "id")
LINES = st.fixed_dictionaries({"messages": st.lists(MESSAGES, max_size=4) | VALUES}, optional=dict.fromkeys(NAMES, VALUES)) | VALUES


@settings(max_examples=300, deadline=None)
@given(LINES.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=40))
def test_no_line_breaks_the_reader(line: bytes) -> None:
    result = read_line(line)
    if isinstance(result, RefusedLine):
        assert result.reason
        return
    transcript = result.transcript
    assert transcript.turns and transcript.task.description and transcript.id and transcript.task.scope
    assert all(isinstance(text, str) for turn in transcript.turns for text in turn)
    for text in (transcript.task.description, transcript.id, transcript.task.scope):
        text.encode()
