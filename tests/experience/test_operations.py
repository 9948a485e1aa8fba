import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from complementary_rl.experience.operations import Parsed, parse_distillation, parse_merge, strip_thinking
from complementary_rl.types import Operation

ADD = '{"op":"add","text":"the exit is in the west"}'
ADDED = Operation("add", "the exit is in the west")


def distil(text: str, shown: tuple[int, ...] = (12, 13), most: int = 3) -> Parsed:
    return parse_distillation(text, shown=shown, max_operations=most)


def merged(text: str, shown: tuple[int, ...] = (31, 32, 33, 34)) -> Parsed:
    return parse_merge(text, shown=shown)


def test_every_distillation_operation_is_read() -> None:
    parsed = distil(f'[{ADD},{{"op":"update","id":1,"text":" better "}}]')
    assert parsed == Parsed((ADDED, Operation("update", "better", (12,))))
    assert distil('[{"op":"return"}]') == Parsed((Operation("return"),))
    assert distil("[]") == Parsed((Operation("return"),))


def test_every_merge_operation_is_read() -> None:
    parsed = merged('[{"op":"keep","id":3},{"op":"merge","ids":[4,1],"text":"both"},{"op":"drop","id":2}]')
    assert parsed == Parsed((Operation("merge", "both", (34, 31)), Operation("drop", None, (32,))))
    assert merged("[]") == Parsed(())
    assert merged('[{"op":"keep","id":1}]') == Parsed(())


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n[{ADD}]\n```",
        f"```\n[{ADD}]```",
        f'<think>I could write [{{"op":"return"}}]</think>\n\n[{ADD}]',
        f"no opening tag, as templates that open it themselves leave it</think>```json\n[{ADD}]\n```",
        f"  \n[ {ADD} ]\n",
        '[{"op":"add","text":"the exit is in the west","why":"seen"}]',
    ],
)
def test_fences_thoughts_and_spaces_are_no_repair(text: str) -> None:
    assert distil(text) == Parsed((ADDED,))


@pytest.mark.parametrize(
    "text",
    [
        ADD,
        f"[{ADD},]",
        f"[{ADD}",
        f"[{ADD},",
        f'[{ADD},{{"op":"upd',
        f'[{ADD},{{"op":"add","text":"breaks off in the mid',
        f"```json\n[{ADD}]",
        f"```json\n[{ADD},{{",
        f"[{ADD},{'[' * 100_000}",
    ],
)
def test_one_slip_or_a_break_is_repaired(text: str) -> None:
    assert distil(text) == Parsed((ADDED,), repaired=True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "garbage",
        "null",
        "3",
        f'"{"x" * 10}"',
        "{",
        "[",
        '[{"op":"add","text":"broken off at on',
        f"Sure! [{ADD}]",
        f"[{ADD}] I hope this helps.",
        f"<think>never closed [{ADD}]",
        f"{ADD},{ADD}",
        "[" * 100_000,
        f"[{'9' * 5000}",
        "[1, 2]",
        '[{"op":"explode"}]',
    ],
)
def test_what_would_need_guessing_is_unparsable(text: str) -> None:
    for parsed in (distil(text), merged(text)):
        assert not parsed.parsable
        assert parsed.operations == ()


@pytest.mark.parametrize(
    ("element", "problem"),
    [
        ('{"op":"fly"}', "unknown_op"),
        ('{"op":"keep","id":1}', "unknown_op"),
        ('{"op":7}', "wrong_type"),
        ('"add"', "wrong_type"),
        ('{"op":"add","text":7}', "wrong_type"),
        ('{"op":"add"}', "wrong_type"),
        ('{"op":"add","text":"  "}', "empty_text"),
        ('{"op":"update","id":"1","text":"x"}', "wrong_type"),
        ('{"op":"update","id":true,"text":"x"}', "wrong_type"),
        ('{"op":"update","id":1.0,"text":"x"}', "wrong_type"),
        ('{"op":"update","id":3,"text":"x"}', "unknown_id"),
        ('{"op":"update","id":12,"text":"x"}', "unknown_id"),
        ('{"op":"update","id":0,"text":"x"}', "unknown_id"),
        ('{"op":"update","text":"x"}', "wrong_type"),
        (ADD, "repeated_text"),
        ('{"op":"return"}', "stray_return"),
    ],
)
def test_a_bad_operation_is_dropped_and_named(element: str, problem: str) -> None:
    assert distil(f"[{ADD},{element}]") == Parsed((ADDED,), {problem: 1})


@pytest.mark.parametrize(
    ("element", "problem"),
    [
        ('{"op":"merge","ids":[2,2],"text":"x"}', "too_few_ids"),
        ('{"op":"merge","ids":2,"text":"x"}', "wrong_type"),
        ('{"op":"merge","ids":[2,[3]],"text":"x"}', "wrong_type"),
        ('{"op":"merge","ids":[2,9],"text":"x"}', "unknown_id"),
        ('{"op":"merge","ids":[1,2],"text":"x"}', "repeated_id"),
        ('{"op":"merge","ids":[2,3],"text":""}', "empty_text"),
        ('{"op":"keep","id":1}', "repeated_id"),
        ('{"op":"drop","id":9}', "unknown_id"),
        ('{"op":"add","text":"x"}', "unknown_op"),
    ],
)
def test_a_bad_merge_operation_is_dropped_and_named(element: str, problem: str) -> None:
    assert merged(f'[{{"op":"drop","id":1}},{element}]') == Parsed((Operation("drop", None, (31,)),), {problem: 1})


def test_an_entry_is_kept_whatever_is_said_of_it_later() -> None:
    assert merged('[{"op":"keep","id":1},{"op":"drop","id":1}]') == Parsed((), {"repeated_id": 1})


def test_a_list_without_one_valid_operation_is_unparsable() -> None:
    parsed = distil('[{"op":"update","id":99,"text":"x"}]')
    assert not parsed.parsable
    assert parsed.problems == {"unknown_id": 1}


def test_more_than_the_maximum_are_dropped_and_counted() -> None:
    text = json.dumps([{"op": "add", "text": f"note {i}"} for i in range(5)])
    parsed = distil(text, most=2)
    assert [operation.text for operation in parsed.operations] == ["note 0", "note 1"]
    assert parsed.problems == {"too_many": 3}


def test_thinking_ends_at_its_last_closing_tag() -> None:
    assert strip_thinking("<think>a </think> b</think>\n\nanswer ") == "answer"
    assert strip_thinking(" answer ") == "answer"


_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
_ids = st.integers(-1, 6) | _scalars
_elements = st.fixed_dictionaries(
    {},
    optional={
        "op": st.sampled_from(["add", "update", "return", "keep", "merge", "drop", "x"]) | _scalars,
        "text": st.sampled_from(["", " ", "a", "b", "\ud800"]) | _scalars,
        "id": _ids,
        "ids": st.lists(_ids, max_size=4) | _scalars,
    },
)
_answers: st.SearchStrategy[Any] = st.lists(_elements | _scalars, max_size=6)
_texts = st.builds(
    lambda value, cut, prefix: prefix + json.dumps(value)[: None if cut is None else -cut],
    _answers | _elements,
    st.none() | st.integers(1, 30),
    st.sampled_from(["", "```json\n", "<think>", "</think>", "Sure: "]),
)


@given(_texts | st.text(), st.lists(st.integers(50, 60), unique=True, max_size=5), st.integers(1, 3))
def test_whatever_is_written_the_bounds_hold(text: str, shown: list[int], most: int) -> None:
    for parsed in (parse_distillation(text, shown=shown, max_operations=most), parse_merge(text, shown=shown)):
        touched = [target for operation in parsed.operations for target in operation.targets]
        assert set(touched) <= set(shown)
        assert len(touched) == len(set(touched))
        assert parsed.parsable or not parsed.operations
        assert all(operation.text is None or operation.text.strip() for operation in parsed.operations)
    assert len(parse_distillation(text, shown=shown, max_operations=most).operations) <= most


@given(st.integers(1, 60))
def test_a_list_that_breaks_off_anywhere_keeps_its_complete_operations(cut: int) -> None:
    whole = [{"op": "add", "text": "first"}, {"op": "add", "text": "second, with ] and } in it"}]
    text = json.dumps(whole)
    parsed = distil(text[:-cut])
    complete = text[:-cut].count("}") - ('in it"}' not in text[:-cut] and "and }" in text[:-cut])
    assert [operation.text for operation in parsed.operations] == [e["text"] for e in whole[:complete]]
    assert parsed.repaired == (complete > 0)
