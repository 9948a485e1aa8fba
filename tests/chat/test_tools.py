"""Tool calls by the convention of the template: found out, offered, read strictly, answered, and safe from what contents say."""

from typing import Any, cast

import pytest
from helpers.chat_tokenizers import FAMILIES, make_tokenizer, with_template
from helpers.tool_templates import NO_ANSWERS, TOOL_TEMPLATES, UNKNOWN_CALLS
from hypothesis import given, settings
from hypothesis import strategies as st

from complementary_rl.chat.codec import ChatCodec
from complementary_rl.chat.tools import Malformed, ToolFormat, parse_call, schema
from complementary_rl.types import Message

TOOL = schema("look_up", "Finds things.", {"question": "What to find."})
FORMATS = [cast(ToolFormat, name) for name in TOOL_TEMPLATES]
HERMES = '<tool_call>\n{"name": "look_up", "arguments": {"question": "where?"}}\n</tool_call>'
LLAMA = '{"name": "look_up", "parameters": {"question": "where?"}}'
MISTRAL = '[TOOL_CALLS] [{"name": "look_up", "arguments": {"question": "where?"}, "id": "abcdefghi"}]'


def codec_of(format: str) -> ChatCodec:
    return ChatCodec(with_template(*TOOL_TEMPLATES[format]))


@pytest.mark.parametrize("format", FORMATS)
def test_the_format_is_found_by_having_the_template_write_a_call(format: ToolFormat) -> None:
    assert codec_of(format).tool_format(TOOL) == format


def test_templates_without_usable_tools_have_no_format() -> None:
    for family in FAMILIES:
        assert ChatCodec(make_tokenizer(family)).tool_format(TOOL) is None
    for template in (UNKNOWN_CALLS, NO_ANSWERS):
        assert ChatCodec(with_template("qwen3", template)).tool_format(TOOL) is None


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_offered_and_answered_is_what_the_template_renders(format: ToolFormat) -> None:
    family, template = TOOL_TEMPLATES[format]
    tokenizer = with_template(family, template)
    codec = ChatCodec(tokenizer)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "at 3 4"}]
    opened = codec.open([Message("user", "at 3 4")], TOOL)
    text = tokenizer.apply_chat_template(messages, tools=[TOOL], add_generation_prompt=True, tokenize=False)
    assert "Finds things." in text
    assert tokenizer.decode(opened) == text
    said = tuple(tokenizer("north", add_special_tokens=False)["input_ids"])
    messages += [{"role": "assistant", "content": "\ue000"}, {"role": "tool", "content": "east", "tool_call_id": "000000000"}]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False).partition("\ue000")[2]
    assert tokenizer.decode(codec.extend(said, [Message("tool", "east")], TOOL)) == text


@pytest.mark.parametrize(("format", "text"), [("hermes", HERMES), ("llama", LLAMA), ("mistral", MISTRAL)])
def test_a_call_is_read(format: ToolFormat, text: str) -> None:
    assert parse_call(text, format, TOOL) == {"question": "where?"}
    assert parse_call(text.replace("where?", 'a \\u00e9 \\"b\\" </x>'), format, TOOL) == {"question": 'a é "b" </x>'}


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("hermes", "north"),
        ("hermes", LLAMA),
        ("llama", "north"),
        ("llama", '{"move": 3}'),
        ("llama", "I say " + LLAMA),
        ("mistral", "[1]"),
    ],
)
def test_an_action_is_no_call(format: ToolFormat, text: str) -> None:
    assert parse_call(text, format, TOOL) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (HERMES + HERMES, "exactly one call"),
        ("<tool_call>" + HERMES, "exactly one call"),
        (HERMES.removesuffix("</tool_call>"), "exactly one call"),
        (HERMES.replace("}}", "}"), "not valid JSON"),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", "not valid JSON"),
        ("<tool_call>[]</tool_call>", "an object"),
        (HERMES.replace("arguments", "parameters"), "an object"),
        (HERMES.replace("look_up", "rm"), "there is one tool, look_up"),
        (HERMES.replace('"question"', '"query"'), "takes question"),
        (HERMES.replace('"where?"', '"where?", "more": 1'), "takes question"),
        (HERMES.replace('"where?"', "7"), "question must be a text"),
        (HERMES.replace("where?", " "), "question must be a text"),
    ],
)
def test_a_call_that_cannot_be_carried_out_says_why(text: str, reason: str) -> None:
    outcome = parse_call(text, "hermes", TOOL)
    assert isinstance(outcome, Malformed)
    assert reason in outcome.reason


def test_malformed_calls_of_the_other_formats() -> None:
    assert isinstance(parse_call(LLAMA[:-1], "llama", TOOL), Malformed)
    assert isinstance(parse_call(LLAMA + LLAMA, "llama", TOOL), Malformed)
    assert isinstance(parse_call(MISTRAL.replace("[{", "[{}, {"), "mistral", TOOL), Malformed)


HOSTILE = [
    "<|im_end|>",
    "</tool_response>",
    "<tool_call>",
    "<|eot_id|>",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "</s>",
    "\n",
    '"',
    "}",
    "a",
]


@pytest.mark.parametrize("format", FORMATS)
@settings(deadline=None, max_examples=40)
@given(text=st.lists(st.sampled_from(HOSTILE) | st.text(max_size=4), max_size=6).map("".join))
def test_no_answer_changes_what_stands_around_it(format: ToolFormat, text: str) -> None:
    codec = _CODECS[format]

    def structure(content: str) -> list[int]:
        ids = (*codec.open([Message("user", content)], TOOL), *codec.extend((5,), [Message("tool", content)], TOOL))
        return [id for id in ids if id in codec.structural_ids]

    assert structure(text) == structure("MARK")
    closing = {"hermes": "</tool_response>", "llama": "", "mistral": "[/TOOL_RESULTS]"}[format]
    if format != "llama":  # whose closing is a token: as text it closes nothing
        assert codec.decode(codec.extend((5,), [Message("tool", text)], TOOL)).count(closing) == 1


_CODECS = {format: codec_of(format) for format in FORMATS}
