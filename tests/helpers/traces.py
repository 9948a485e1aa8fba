"""Transcripts in chat format, made up: walks through dark rooms, and a call to a shop's support."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SERVICE: dict[str, Any] = {
    "id": "order-17",
    "env": "shop",
    "success": True,
    "messages": [
        {"role": "system", "content": "You are the support of a shop."},
        {"role": "developer", "content": [{"type": "text", "text": "Refund within 30 days."}]},
        {"role": "user", "content": "I want my money back for order A17."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "get_order", "arguments": '{"order": "A17"}'}},
                {"id": "c2", "type": "function", "function": {"name": "get_rules", "arguments": {}}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": '{"bought": "12 days ago"}'},
        {"role": "tool", "tool_call_id": "c2", "content": "30 days"},
        {"role": "assistant", "content": "You get it back."},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "refund", "arguments": '{"order": "A17"}'}}]},
        {"role": "tool", "name": "refund", "content": "done"},
        {"role": "assistant", "content": "It is on its way."},
        {"role": "user", "content": [{"type": "text", "text": "Thanks!"}, {"type": "image_url", "image_url": {"url": "x"}}]},
    ],
}


def walk(goal: str, number: int = 0, *, won: bool = True, **fields: Any) -> dict[str, Any]:
    """Four steps through a dark room, as the package's own actor talks."""
    start = 3 + number % 9
    said = [f"{goal}\nat {start} 9", "north", f"at {start} 8", "north", f"at {start} 7", "west", f"at {start - 1} 7", "north"]
    messages = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(said)]
    end = f"at {start - 1} 6, out" if won else f"at {start - 1} 6"
    return {
        "id": f"walk-{number}",
        "goal": goal,
        "success": won,
        "messages": [*messages, {"role": "user", "content": end}],
        **fields,
    }


def write_traces(path: Path, traces: Iterable[Any]) -> Path:
    """One a line; bytes are written as they are."""
    path.write_bytes(b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in traces))
    return path
