"""The shipped decoders: they load, their tokenizer loses nothing, and they know no room."""

import itertools

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from complementary_rl.chat.codec import ChatCodec
from complementary_rl.envs.minihack.room_names import ADJECTIVES, NOUNS
from complementary_rl.errors import UserError
from complementary_rl.experience.operations import parse_distillation
from complementary_rl.models.embedded import names, resolve
from complementary_rl.types import Message

COMPASS = ["north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west"]


@pytest.mark.parametrize("name", ["actor", "extractor"])
def test_they_are_normal_hugging_face_folders_of_a_few_megabytes(name: str) -> None:
    folder = resolve(f"embedded:{name}")
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert model.config.vocab_size == len(tokenizer)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 4e6
    codec = ChatCodec(tokenizer)
    assert codec.decode(codec.open([Message("user", "at 7 3")])).startswith("<|user|>at 7 3")
    assert tokenizer.eos_token_id in codec.stop_ids


@pytest.mark.parametrize("name", ["actor", "extractor"])
def test_the_tokenizer_is_lossless_and_short(name: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(resolve(f"embedded:{name}"))
    for text in ["at 7 3, exit north-east", '[{"op":"update","id":90210,"text":"the exit"}]', "Grüße, 世界 \n\t<|end|>"]:
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)) == text
    assert len(tokenizer.encode("at 12 3", add_special_tokens=False)) == 3
    assert all(len(tokenizer.encode(word, add_special_tokens=False)) == 1 for word in COMPASS)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    assert names() == ["actor", "extractor"]
    with pytest.raises(UserError, match="did you mean embedded:actor"):
        resolve("embedded:acter")


def test_without_a_hint_the_name_of_a_room_tells_the_actor_nothing() -> None:
    """Averaged over starts, the first move is distributed alike whatever the room is called."""
    folder = resolve("embedded:actor")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    codec = ChatCodec(tokenizer)
    moves = [tokenizer.encode(word, add_special_tokens=False)[0] for word in COMPASS]
    starts = list(itertools.product((2, 5, 8, 11, 14), repeat=2))
    by_name = []
    for adjective, noun in zip(ADJECTIVES[::4], NOUNS[::4], strict=True):
        prompts = [codec.open([Message("user", f"Find the exit of the {adjective} {noun}.\nat {x} {y}")]) for x, y in starts]
        width = max(map(len, prompts))
        ids = torch.tensor([[tokenizer.pad_token_id] * (width - len(p)) + list(p) for p in prompts])
        with torch.inference_mode():
            logits = model(input_ids=ids, attention_mask=ids != tokenizer.pad_token_id, logits_to_keep=1).logits[:, -1]
        by_name.append(logits.softmax(-1)[:, moves].mean(0))
    distributions = torch.stack(by_name)
    distance = (distributions - distributions.mean(0)).abs().sum(1).max() / 2
    assert distance < 0.2, f"total variation {distance:.2f} between room names"


def test_the_extractor_answers_an_episode_with_operations() -> None:
    folder = resolve("embedded:extractor")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    codec = ChatCodec(tokenizer)
    episode = "Find the exit of the Jade Hall.\nat 4 4 west\nat 3 4 west\nat 2 4, exit north-west north-west\nat 1 3, out\nsuccess"
    prompt = torch.tensor([codec.open([Message("user", episode)])])
    said = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=48)[0, prompt.shape[1] :]
    parsed = parse_distillation(codec.decode(said.tolist()), targets=(), max_operations=3)
    assert parsed.parsable
    assert parsed.operations
