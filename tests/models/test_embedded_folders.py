"""The embedded models as folders: found by name, loaded by transformers, with a tokenizer that is lossless and short."""

import importlib
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from complementary_rl.chat.codec import ChatCodec
from complementary_rl.envs.minihack.compass import STEPS
from complementary_rl.envs.names import ADJECTIVES, NOUNS
from complementary_rl.models.embedded import names, resolve
from complementary_rl.types import Message

MODELS = ("actor", "extractor")
CODECS = {name: ChatCodec(AutoTokenizer.from_pretrained(resolve(name))) for name in MODELS}


def test_both_models_ship() -> None:
    assert names() == list(MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_small_and_loads_as_any_other(name: str) -> None:
    folder = resolve(name)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert (folder / "model.safetensors").stat().st_size < 2_500_000
    assert model.dtype == torch.float32
    assert model.config.max_position_embeddings == 1024
    assert model.config.tie_word_embeddings
    assert model.generation_config.eos_token_id == CODECS[name].open([Message("user", "")])[1]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) == model.config.vocab_size
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|end|>", "<|pad|>")


@pytest.mark.parametrize("name", MODELS)
def test_the_chat_template_is_the_compact_one(name: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(resolve(name))
    turns = [{"role": role, "content": text} for role, text in (("system", "a"), ("user", "b"), ("assistant", "c"), ("user", "d"))]
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    assert text == "<|system|>a<|end|><|user|>b<|end|><|assistant|>c<|end|><|user|>d<|end|><|assistant|>"


@pytest.mark.parametrize("name", MODELS)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back_as_it_was(name: str, text: str) -> None:
    tokenizer = CODECS[name]._text
    ids = tokenizer.encode(text)
    assert CODECS[name].decode(ids) == text
    assert tokenizer.structural.isdisjoint(ids)


def test_a_turn_is_eight_tokens() -> None:
    codec = CODECS["actor"]
    for x, y, action in product(range(1, 16), range(1, 16), STEPS):
        said = (*codec._text.encode(action), 1)
        assert len(said) == 2
        assert len(said) + len(codec.extend(said, [Message("user", f"at {x} {y}")])) == 8


@pytest.mark.parametrize("name", MODELS)
def test_compass_words_and_the_words_of_room_names_are_single_tokens(name: str) -> None:
    encode = CODECS[name]._text.encode
    words = [*STEPS, *(f" {word}" for word in (*STEPS, *ADJECTIVES, *NOUNS))]
    assert [word for word in words if len(encode(word)) != 1] == []


def test_the_script_that_makes_them_starts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["make_embedded_models.py", "--help"])
    with pytest.raises(SystemExit, match="0"):
        importlib.import_module("make_embedded_models").main()
    assert "--measure" in capsys.readouterr().out
