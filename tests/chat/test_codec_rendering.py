"""That a codec gives the tokens the model's own tokenizer gives, turn by turn, for text that has nothing against it."""

from typing import Any

import pytest
from helpers.chat_tokenizers import FAMILIES, make_tokenizer, with_template
from hypothesis import given, settings
from hypothesis import strategies as st

from complementary_rl.chat.codec import ChatCodec
from complementary_rl.types import Message, TokenIds

OPENING = "Find the exit of the Amber Gallery.\nhint: the exit is in the north-east\nat 3 4"
MAP = "#  Task\n\n|.....|\n|        |\n\n\n|...>.|"
CONVERSATIONS = [
    [Message("user", OPENING)],
    [Message("user", MAP), Message("assistant", "north-east"), Message("user", "at 3 4, exit north")],
    [
        Message("system", "You are a helpful assistant."),
        Message("user", OPENING),
        Message("assistant", "east"),
        Message("user", MAP),
    ],
]
# Llama 2 tells turns apart by words, which a tokenizer joins with what follows: no prompt of it has its conversation's tokens.
WITH_CHAT_TOKENS = [family for family in FAMILIES if family != "llama2"]
PLAIN = st.lists(st.sampled_from(["at 3 4", "exit", "north", "north-east", "\n", "    ", ".", "|..@..|", "é", "日本"]), min_size=1)
REPLY = PLAIN.map(lambda words: ("go " + " ".join(words)).strip())


def reference(tokenizer: Any, messages: list[Message], generation_prompt: bool = True) -> TokenIds:
    """The ids of the whole conversation by transformers, with the date that the codec fixes."""
    ids = tokenizer.apply_chat_template(
        [{"role": message.role, "content": message.content} for message in messages],
        chat_template=tokenizer.chat_template.replace('strftime_now("%d %b %Y")', '"26 Jul 2024"'),
        add_generation_prompt=generation_prompt,
        return_dict=False,
    )
    return tuple(ids)


def end_of_turn(tokenizer: Any) -> int:
    """The token that the template closes an assistant's turn with."""
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "A"}, {"role": "assistant", "content": "B"}], tokenize=False, add_generation_prompt=False
    )
    ending = tokenizer(text.rsplit("B", 1)[1].strip(), add_special_tokens=False)["input_ids"]
    return int(ending[0])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("messages", CONVERSATIONS)
def test_a_prompt_has_the_tokens_that_transformers_gives_it(family: str, messages: list[Message]) -> None:
    if family == "gemma" and messages[0].role == "system":
        pytest.skip("this template has no system role")
    tokenizer = make_tokenizer(family)
    assert ChatCodec(tokenizer).open(messages) == reference(tokenizer, messages)


@pytest.mark.parametrize("family", WITH_CHAT_TOKENS)
@pytest.mark.parametrize("cut_off", [False, True])
@settings(deadline=None, max_examples=25)
@given(opening=PLAIN.map(" ".join), turns=st.lists(st.tuples(REPLY, PLAIN.map(" ".join)), min_size=1, max_size=4))
def test_an_episode_is_the_conversation_token_by_token_with_an_exact_mask(
    family: str, cut_off: bool, opening: str, turns: list[tuple[str, str]]
) -> None:
    tokenizer = make_tokenizer(family)
    codec = ChatCodec(tokenizer)
    messages = [Message("user", opening)]
    ids = codec.open(messages)
    mask = [False] * len(ids)
    for reply, observation in turns:
        sampled = tuple(tokenizer(reply, add_special_tokens=False)["input_ids"])
        if not cut_off:
            sampled += (end_of_turn(tokenizer),)
        added = codec.extend(sampled, [Message("user", observation)])
        ids += sampled + added
        mask += [True] * len(sampled) + [False] * len(added)
        messages += [Message("assistant", reply), Message("user", observation)]
        assert ids == reference(tokenizer, messages)
    ending = "" if cut_off else tokenizer.convert_ids_to_tokens(end_of_turn(tokenizer))
    assert tokenizer.decode([id for id, own in zip(ids, mask, strict=True) if own]) == tokenizer.decode(
        [id for reply, _ in turns for id in tokenizer(reply + ending, add_special_tokens=False)["input_ids"]]
    )


def test_the_system_prompt_a_template_adds_is_there_once() -> None:
    codec = ChatCodec(make_tokenizer("chatml"))
    opened = codec.open([Message("user", "hello")])
    assert codec.decode(opened).startswith("<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nhello")
    assert codec.decode(codec.extend((5,), [Message("user", "again")])) == (
        "<|im_end|>\n<|im_start|>user\nagain<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_system_message_goes_before_the_first_user_message_where_there_is_no_system_role() -> None:
    codec = ChatCodec(make_tokenizer("gemma"))
    folded = codec.open(
        [Message("system", "Be brief."), Message("user", "hello"), Message("assistant", "hi"), Message("user", "go")]
    )
    assert codec.decode(folded) == (
        "<bos><start_of_turn>user\nBe brief.\n\nhello<end_of_turn>\n<start_of_turn>model\nhi<end_of_turn>\n"
        "<start_of_turn>user\ngo<end_of_turn>\n<start_of_turn>model\n"
    )


def test_a_template_that_loses_the_system_message_is_noticed() -> None:
    template = (
        "{% for message in messages if message.role != 'system' %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    codec = ChatCodec(with_template("tiny", template))
    opened = codec.open([Message("system", "Be brief."), Message("user", "hello")])
    assert codec.decode(opened) == "<|user|>Be brief.\n\nhello<|end|><|assistant|>"


def test_contents_are_trimmed_where_the_template_trims_them_and_nowhere_else() -> None:
    content = "\n  at 3 4 \n"
    for family, expected in [
        ("llama3", "at 3 4"),
        ("gemma", "at 3 4"),
        ("chatml", content),
        ("tiny", content),
        ("llama2", content),
    ]:
        tokenizer = make_tokenizer(family)
        messages = [Message("user", content)]
        opened = ChatCodec(tokenizer).open(messages)
        assert opened == reference(tokenizer, messages)
        assert expected in tokenizer.decode(opened)


def test_a_template_that_writes_the_date_writes_the_same_one_every_day() -> None:
    opened = ChatCodec(make_tokenizer("llama3")).open([Message("user", "hello")])
    assert "Today Date: 26 Jul 2024\n" in make_tokenizer("llama3").decode(opened)


def test_rendering_is_done_once_for_each_sequence_of_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = with_template("chatml", make_tokenizer("chatml").chat_template)
    codec = ChatCodec(tokenizer)
    codec.open([Message("user", "a")])
    codec.extend((5,), [Message("user", "b")])
    monkeypatch.setattr(tokenizer, "apply_chat_template", lambda *_, **__: pytest.fail("rendered again"))
    for number in range(5):
        codec.open([Message("user", f"at {number}")])
        codec.extend((5, number), [Message("user", f"at {number}")])
