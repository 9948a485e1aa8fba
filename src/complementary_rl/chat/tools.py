"""Tool calls by the convention of a model's template: how it writes one, and how one is read from what the model said.

hermes    <tool_call>{"name": …, "arguments": {…}}</tool_call>        Qwen, Hermes, SmolLM
llama     {"name": …, "parameters": {…}}                              Llama 3
mistral   [TOOL_CALLS][{"name": …, "arguments": {…}}]                 Mistral
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

ToolFormat = Literal["hermes", "llama", "mistral"]

_HERMES = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_LLAMA = re.compile(r'\s*(?:<\|python_tag\|>)?\s*(\{\s*"name".*)', re.DOTALL)
_MISTRAL = re.compile(r"\[TOOL_CALLS\](.*)", re.DOTALL)
_ENDS = re.compile(r"<\|eot_id\|>|<\|im_end\|>|</s>")


@dataclass(frozen=True, slots=True)
class Malformed:
    """A tool call that cannot be carried out; `reason` is for the model, which may try again."""

    reason: str


def schema(name: str, description: str, arguments: Mapping[str, str]) -> dict[str, Any]:
    """A function in the form that templates take; `arguments` are required texts, name → description."""
    properties = {argument: {"type": "string", "description": text} for argument, text in arguments.items()}
    parameters = {"type": "object", "properties": properties, "required": list(arguments)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def detect_format(rendered: str, tool: Mapping[str, Any], marker: str) -> ToolFormat | None:
    """The format of the call that a template rendered with `marker` as every argument of `tool`, or None if it is no known one."""
    expected = dict.fromkeys(tool["function"]["parameters"]["properties"], marker)
    for format in get_args(ToolFormat):
        start = {"hermes": "<tool_call>", "llama": '{"name"', "mistral": "[TOOL_CALLS]"}[format]
        call = _ENDS.split(rendered[rendered.find(start) :])[0] if start in rendered else ""
        if call and parse_call(call, format, tool) == expected:
            return cast(ToolFormat, format)
    return None


def parse_call(text: str, format: ToolFormat, tool: Mapping[str, Any]) -> dict[str, str] | Malformed | None:
    """The arguments of the one call of `tool` in what a model said; None when it called nothing.

    Strict: exactly one call, JSON, the tool's name, its arguments and no others, all of them texts that are not blank.
    """
    name, arguments = tool["function"]["name"], tool["function"]["parameters"]["required"]
    found = _payload(text, format)
    if found is None or isinstance(found, Malformed):
        return found
    try:
        call = json.loads(found)
    except (ValueError, RecursionError):
        return Malformed("the call is not valid JSON")
    if format == "mistral":
        if not isinstance(call, list) or len(call) != 1:
            return Malformed("exactly one call can be made at a time, as a list of one")
        call = call[0]
    key = "parameters" if format == "llama" else "arguments"
    if not isinstance(call, dict) or not {"name", key} <= call.keys() <= {"name", key, "id"}:
        return Malformed(f'a call is an object with "name" and "{key}"')
    if call["name"] != name:
        return Malformed(f"there is one tool, {name}")
    given = call[key]
    if not isinstance(given, dict) or sorted(given) != sorted(arguments):
        return Malformed(f"{name} takes {', '.join(arguments)} and nothing else")
    blank = next((argument for argument in arguments if not isinstance(given[argument], str) or not given[argument].strip()), None)
    return given if blank is None else Malformed(f"{blank} must be a text")


def _payload(text: str, format: ToolFormat) -> str | Malformed | None:
    """The JSON of the call."""
    if format == "hermes":
        if "<tool_call>" not in text:
            return None
        calls = _HERMES.findall(text)
        if len(calls) != 1 or text.count("<tool_call>") != 1:
            return Malformed("exactly one call can be made at a time, between <tool_call> and </tool_call>")
        return str(calls[0])
    match = (_LLAMA.fullmatch if format == "llama" else _MISTRAL.search)(text)
    return match[1] if match else None
