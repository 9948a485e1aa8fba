"""What the extractor may answer, and how strictly it is read. Pure functions of text.

An answer is a JSON list of operations and nothing else:

    distillation  [{"op":"add","text":"…"}, {"op":"update","id":1,"text":"…"}]      or  [{"op":"return"}]
    merge         [{"op":"keep","id":3}, {"op":"merge","ids":[4,7],"text":"…"}, {"op":"drop","id":9}]

Entries are named by their number in the prompt, from 1 in the order shown: short, and nothing that was not shown has one.

Around it two things are allowed, because instruct and thinking models write them unasked: everything up to a closing ``</think>``,
and one ```` ```json ```` fence around the whole list. Further keys of an operation are ignored. `[]` is an answer: nothing to do.

Repairs are bounded to what a single slip or the token limit causes, and are counted: one object instead of a list, a trailing
comma, a fence that never closes, and a list that breaks off, of which the complete operations before the break are kept. Prose
around the list, and anything that would need guessing, is unparsable.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from complementary_rl.types import Operation

_THOUGHT_END = "</think>"
_FENCE = "```"
_DECODER = json.JSONDecoder()
_T = TypeVar("_T", bound=Operation | None)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A read answer. `operations` are valid, at most as many as allowed, and target only entries that were shown, each at most once.

    `parsable` is False when there was no list to read, or a list in which not one element was valid; then `operations` is empty.
    `problems` counts what was dropped, by reason: `wrong_type`, `unknown_op`, `unknown_id`, `repeated_id`, `too_few_ids`,
    `empty_text`, `repeated_text`, `stray_return` (a return beside other operations), `too_many`.
    """

    operations: tuple[Operation, ...]
    problems: dict[str, int] = field(default_factory=dict)
    repaired: bool = False
    parsable: bool = True

    @property
    def well_formed(self) -> bool:
        """Whether the answer could be taken as it stands: read without a repair, nothing dropped."""
        return self.parsable and not self.repaired and not self.problems


class _Dropped(Exception):
    """An element that is no valid operation; the argument is the reason."""


def parse_distillation(text: str, *, shown: Sequence[int], max_operations: int) -> Parsed:
    """Read an answer to an episode. `shown` are the ids of the entries in the prompt, in its order: only they can be updated.

    Never raises. A `return` counts only where nothing else was written; `[]` is read as one.
    """
    elements, repaired = _read_list(text)
    if elements is None:
        return Parsed((), repaired=False, parsable=False)
    operations, problems = _collect(elements, shown, _distillation_operation)
    if not elements:
        operations = [Operation("return")]
    writes = [operation for operation in operations if operation.kind != "return"]
    kept = writes or operations[:1]
    problems["stray_return"] += len(operations) - len(kept)
    problems["too_many"] += len(kept[max_operations:])
    return Parsed(tuple(kept[:max_operations]), _counted(problems), repaired, parsable=bool(kept))


def parse_merge(text: str, *, shown: Sequence[int]) -> Parsed:
    """Read an answer to a chunk of the bank, the entries `shown` in the order of the prompt: merges and drops. `keep` gives none.

    Never raises. An entry that is mentioned twice counts the first time.
    """
    elements, repaired = _read_list(text)
    if elements is None:
        return Parsed((), repaired=False, parsable=False)
    operations, problems = _collect(elements, shown, _merge_operation)
    changes = tuple(operation for operation in operations if operation is not None)
    return Parsed(changes, _counted(problems), repaired, parsable=bool(operations) or not elements)


def strip_thinking(text: str) -> str:
    """`text` without a thinking model's reasoning: what follows the last ``</think>``."""
    return text.rpartition(_THOUGHT_END)[2].strip()


def _read_list(text: str) -> tuple[list[Any] | None, bool]:
    """The elements of the list and whether it had to be repaired; None when there is no list."""
    body, repaired = _unfenced(strip_thinking(text))
    try:
        value = _DECODER.decode(body)
    except (ValueError, RecursionError):
        elements = _complete_elements(body)
        return elements, elements is not None
    if isinstance(value, dict):
        return [value], True
    return (value, repaired) if isinstance(value, list) else (None, False)


def _unfenced(text: str) -> tuple[str, bool]:
    if not text.startswith(_FENCE):
        return text, False
    body = text.removeprefix(_FENCE).removeprefix("json")
    closed = body.endswith(_FENCE)
    return body.removesuffix(_FENCE).strip(), not closed


def _complete_elements(body: str) -> list[Any] | None:
    """The elements of a list that breaks off, up to the break; None when there is not one, or when text follows the list."""
    if not body.startswith("["):
        return None
    elements: list[Any] = []
    position = 1
    while True:
        position = _skip_space(body, position)
        if body[position : position + 1] == "]":
            return elements if elements and not body[position + 1 :].strip() else None
        try:
            element, position = _DECODER.raw_decode(body, position)
        except (ValueError, RecursionError):
            return elements or None
        elements.append(element)
        position = _skip_space(body, position)
        if body[position : position + 1] == ",":
            position += 1
        elif body[position : position + 1] != "]":
            return elements


def _skip_space(body: str, position: int) -> int:
    while position < len(body) and body[position] in " \t\r\n":
        position += 1
    return position


def _collect(
    elements: list[Any], shown: Sequence[int], read: Callable[[Any, Mapping[int, int], set[int]], _T]
) -> tuple[list[_T], Counter[str]]:
    operations = []
    problems: Counter[str] = Counter()
    numbered = dict(enumerate(shown, start=1))
    free, texts = set(shown), set[str]()
    for element in elements:
        try:
            operation = read(element, numbered, free)
            if operation is not None and operation.text is not None:
                if operation.text in texts:
                    raise _Dropped("repeated_text")
                texts.add(operation.text)
        except _Dropped as reason:
            problems[str(reason)] += 1
            continue
        operations.append(operation)
        free.difference_update(operation.targets if operation is not None else [numbered[element["id"]]])
    return operations, problems


def _distillation_operation(element: Any, numbered: Mapping[int, int], free: set[int]) -> Operation:
    match _kind(element):
        case "add":
            return Operation("add", _text(element))
        case "update":
            return Operation("update", _text(element), (_target(element.get("id"), numbered, free),))
        case "return":
            return Operation("return")
    raise _Dropped("unknown_op")


def _merge_operation(element: Any, numbered: Mapping[int, int], free: set[int]) -> Operation | None:
    match _kind(element):
        case "keep":
            _target(element.get("id"), numbered, free)
            return None
        case "drop":
            return Operation("drop", None, (_target(element.get("id"), numbered, free),))
        case "merge":
            ids = element.get("ids")
            if not isinstance(ids, list):
                raise _Dropped("wrong_type")
            targets = tuple(dict.fromkeys(_target(value, numbered, free) for value in ids))
            if len(targets) < 2:
                raise _Dropped("too_few_ids")
            return Operation("merge", _text(element), targets)
    raise _Dropped("unknown_op")


def _kind(element: Any) -> str:
    kind = element.get("op") if isinstance(element, dict) else None
    if not isinstance(kind, str):
        raise _Dropped("wrong_type")
    return kind


def _text(element: dict[str, Any]) -> str:
    text = element.get("text")
    if not isinstance(text, str):
        raise _Dropped("wrong_type")
    if not text.strip():
        raise _Dropped("empty_text")
    return text.strip()


def _target(value: Any, numbered: Mapping[int, int], free: set[int]) -> int:
    if type(value) is not int:  # bool is an int to Python, not to us
        raise _Dropped("wrong_type")
    if value not in numbered:
        raise _Dropped("unknown_id")
    if numbered[value] not in free:
        raise _Dropped("repeated_id")
    return numbered[value]


def _counted(problems: Counter[str]) -> dict[str, int]:
    return {reason: count for reason, count in problems.items() if count}
