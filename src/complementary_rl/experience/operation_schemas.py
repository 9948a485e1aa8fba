"""JSON schemas of what the extractor may answer, for constrained decoding; what follows one is read by `operations` without repairs.

What a schema cannot say (each entry at most once, no text twice) is still checked by the reader.
"""

import json
from typing import Any

# Written as the prompts' examples are, and with no room for endless blanks.
_STYLE = {"x-guidance": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}}


def distillation_schema(shown: int, *, max_operations: int, max_chars: int) -> str:
    """Answers to an episode whose prompt showed `shown` entries; texts have at most `max_chars` characters."""
    writes = [_operation("add", text=_text(max_chars))]
    if shown:
        writes.append(_operation("update", id=_number(shown), text=_text(max_chars)))
    return _schema({"anyOf": [_list(writes, 1, max_operations), _list([_operation("return")], 1, 1)]})


def merge_schema(shown: int, *, max_chars: int) -> str:
    """Answers to a chunk of `shown` entries."""
    operations = [_operation("keep", id=_number(shown)), _operation("drop", id=_number(shown))]
    if shown > 1:
        several = {"type": "array", "items": _number(shown), "minItems": 2, "maxItems": shown}
        operations.append(_operation("merge", ids=several, text=_text(max_chars)))
    return _schema(_list(operations, 0, shown))


def _schema(answer: dict[str, Any]) -> str:
    return json.dumps({**_STYLE, **answer})


def _list(operations: list[dict[str, Any]], fewest: int, most: int) -> dict[str, Any]:
    return {"type": "array", "items": {"anyOf": operations}, "minItems": fewest, "maxItems": most}


def _operation(kind: str, **fields: dict[str, Any]) -> dict[str, Any]:
    properties = {"op": {"const": kind}, **fields}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _number(shown: int) -> dict[str, Any]:
    return {"enum": list(range(1, shown + 1))}


def _text(max_chars: int) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": max_chars}
