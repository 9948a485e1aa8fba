"""Thinking that templates drop: what is cut, by token ids, and that the prompts are then the template's own."""

import pytest
from helpers.chat_tokenizers import FAMILIES, QWEN3, make_tokenizer, with_template
from hypothesis import given, settings
from hypothesis import strategies as st

from complementary_rl.chat.codec import ChatCodec
from complementary_rl.chat.thinking import remembered
from complementary_rl.errors import UserError
from complementary_rl.types import Generation, Message, Turn

OPENS_THINKING = QWEN3.replace(r"'<|im_start|>assistant\n' }}{% endif", r"'<|im_start|>assistant\n<think>\n' }}{% endif")
NEVER_THINKS = QWEN3.replace(
    r"'<|im_start|>assistant\n' }}{% endif", r"'<|im_start|>assistant\n<think>\n\n</think>\n\n' }}{% endif"
)


def after(template: str, said: str, end: str = "<|im_end|>") -> str:
    """What is remembered of a turn in which the model said so, as text."""
    tokenizer = with_template("qwen3", template)
    codec = ChatCodec(tokenizer)
    assert codec.thinking is not None
    ids = tuple(tokenizer(said + end, add_special_tokens=False)["input_ids"])
    generation = Generation("g", "actor", 0, (), ids, (0.0,) * len(ids), "stop")
    turn = Turn("act", "A", codec.open([Message("user", "A")]), generation, "", codec.thinking.span(ids))
    text: str = tokenizer.decode(remembered(turn))
    return text.removeprefix("<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("<think>\nfar\n</think>\n\nnorth", "north<|im_end|>"),
        ("<think>\n\n</think>\n\nnorth", "north<|im_end|>"),
        ("hm <think>\nfar\n</think>north \n", "north \n<|im_end|>"),
        ("<think>a</think>b<think>c</think>\nnorth", "north<|im_end|>"),
        ("far</think>north", "north<|im_end|>"),
        ("north", "north<|im_end|>"),
        ("<think>\nendless", "<|im_end|>"),
        ("north <think>endless", "north <|im_end|>"),
    ],
)
def test_what_is_left_of_a_turn(said: str, left: str) -> None:
    assert after(QWEN3, said) == left
    assert after(QWEN3, said, end="") == left.removesuffix("<|im_end|>"), "a turn that was cut off"


def test_thinking_that_the_prompt_opens_is_cut_in_the_prompt_too() -> None:
    assert after(OPENS_THINKING, "far\n</think>\n\nnorth") == "north<|im_end|>"
    assert after(OPENS_THINKING, "endless") == "<|im_end|>"
    assert after(OPENS_THINKING, "endless", end="") == ""
    assert after(NEVER_THINKS, "north") == "north<|im_end|>"


LINE = st.lists(st.sampled_from(["north", "at 3 4", " ", "    ", "é", "think", "|.@.|", "{}"]), min_size=1).map("".join)


@settings(deadline=None, max_examples=25)
@given(thoughts=st.lists(LINE, min_size=3, max_size=3), actions=st.lists(LINE, min_size=3, max_size=3))
def test_the_prompts_are_those_of_the_template(thoughts: list[str], actions: list[str]) -> None:
    """Sampled as the tokenizer would write it, cut by ids, an episode has the very prompts of `apply_chat_template`."""
    tokenizer = make_tokenizer("qwen3")
    codec = ChatCodec(tokenizer)
    assert codec.thinking is not None
    new_ids = codec.open([Message("user", "start")])
    messages = [{"role": "user", "content": "start"}]
    past: tuple[int, ...] = ()
    for number, (thought, action) in enumerate(zip(thoughts, actions, strict=True)):
        expected = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        assert [*past, *new_ids] == expected
        said = f"<think>\n{thought}\n</think>\n\n{action}"
        ids = tuple(tokenizer(said + "<|im_end|>", add_special_tokens=False)["input_ids"])
        generation = Generation("g", "actor", 0, (), ids, (0.0,) * len(ids), "stop")
        past += remembered(Turn("act", "", new_ids, generation, action, codec.thinking.span(ids)))
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": f"turn {number}"}]
        new_ids = codec.extend(ids, [Message("user", f"turn {number}")])


def test_which_templates_drop_thinking_and_before_whom() -> None:
    for family in FAMILIES:
        assert ChatCodec(make_tokenizer(family)).drops_thinking("user") is (family == "qwen3")
    assert not ChatCodec(make_tokenizer("qwen3")).drops_thinking("tool")
    assert ChatCodec(make_tokenizer("chatml")).thinking is None


def test_tags_that_are_no_tokens_cannot_be_cut() -> None:
    with pytest.raises(UserError, match=r"no tokens <think> and </think>.*earlier_thinking to 'keep'"):
        ChatCodec(with_template("chatml", QWEN3)).drops_thinking("user")
