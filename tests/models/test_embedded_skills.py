"""What the embedded models can do, and that they cannot know a room: with fixed seeds, in the simulated room."""

from functools import cache

import numpy as np
import pytest
import torch
from embedded.corpus import PROMPTS, description
from embedded.measure import Numbers, distill_prompt, measure_actor, measure_extractor, played_room
from embedded.simulator import MOVES, REGIONS, Room, region
from transformers import AutoModelForCausalLM, AutoTokenizer

from complementary_rl.chat.codec import ChatCodec
from complementary_rl.envs.minihack.dark_rooms import DarkRooms
from complementary_rl.envs.names import ADJECTIVES, NOUNS
from complementary_rl.models.embedded import resolve
from complementary_rl.seeds import rng
from complementary_rl.types import Message

EPISODES = 128
ALL_NAMES = [f"Find the exit of the {adjective} {noun}." for adjective, noun in zip(ADJECTIVES, NOUNS, strict=True)]


@cache
def actor() -> dict[str, Numbers]:
    return dict(measure_actor(resolve("actor"), EPISODES, seed=1))


@cache
def extractor() -> dict[str, Numbers]:
    return dict(measure_extractor(resolve("extractor"), EPISODES, seed=1))


def test_the_actor_follows_a_right_hint_more_than_it_finds_by_itself() -> None:
    assert 0.08 < actor()["no hint"]["success"] < 0.3
    assert actor()["right hint"]["success"] > actor()["no hint"]["success"] + 0.06
    assert actor()["wrong hint"]["success"] < actor()["right hint"]["success"] - 0.06


@pytest.mark.parametrize("kind", ["no hint", "right hint"])
def test_the_actor_speaks_in_actions_and_goes_to_an_exit_it_sees(kind: str) -> None:
    assert actor()[kind]["known actions"] > 0.98
    assert actor()[kind]["goes to a seen exit"] > 0.85


def test_the_extractor_knows_the_right_region_but_does_not_often_say_it() -> None:
    assert extractor()["success, greedy"]["right among positive"] > 0.9
    assert 1 / 9 < extractor()["success, sampled"]["right among positive"] < 0.5  # 1/9 would be chance


@pytest.mark.parametrize("outcome", ["success", "failure"])
def test_the_extractor_writes_operations_that_can_be_read(outcome: str) -> None:
    assert extractor()[f"{outcome}, sampled"]["well-formed"] >= 0.97


def test_the_extractor_merges_and_updates_in_a_form_that_can_be_read() -> None:
    assert extractor()["merge"]["parsable"] > 0.85
    assert extractor()["merge"]["merges per chunk"] > 0.2
    assert extractor()["failure with a negative entry shown"]["update"] > 0.08


def test_the_extractor_returns_more_after_failures() -> None:
    assert extractor()["failure, sampled"]["return"] > extractor()["success, sampled"]["return"] + 0.1


def test_the_actor_cannot_know_where_the_exit_of_a_room_is() -> None:
    """From the middle, without a hint, it starts in the same directions whatever the room is called."""
    prompts = [
        PROMPTS.render("actor", instructions="", description=name, experience=[], tool=False, observation="at 8 8")
        for name in (*quickstart_names(), *ALL_NAMES)
    ]
    assert spread(next_words("actor", prompts, "", list(MOVES))) < 0.12


def test_the_extractor_cannot_know_where_the_exit_of_a_room_is() -> None:
    """After one and the same failure it guesses the same regions whatever the room is called."""
    room = played_room(rng("tests", "no-knowledge"), won=False)
    prompts = [distill_prompt(room, name) for name in (*quickstart_names(), *ALL_NAMES)]
    start = '[{"op":"add","text":"the exit is in the'
    assert spread(next_words("extractor", prompts, start, [f" {name}" for name in REGIONS])) < 0.12


def test_lessons_pair_a_name_with_any_exit() -> None:
    random = rng("tests", "lessons")
    pairs = {(description(random), region(*Room.draw(random).exit)) for _ in range(20_000)}
    by_name: dict[str, int] = {}
    for name, _ in pairs:
        by_name[name] = by_name.get(name, 0) + 1
    assert np.mean(list(by_name.values())) > 6


def quickstart_names() -> list[str]:
    suite = DarkRooms(rooms=16, max_turns=16)
    return [task.description for split in ("train", "heldout") for task in suite.tasks(split)]


@torch.inference_mode()
def next_words(name: str, contents: list[str], start: str, words: list[str]) -> np.ndarray:
    """[prompts, words]: the distribution over `words` as what follows `start` in the reply, each one token."""
    folder = resolve(name)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    codec = ChatCodec(tokenizer)
    prefix = tokenizer.encode(start, add_special_tokens=False)
    columns = [tokenizer.encode(word, add_special_tokens=False)[0] for word in words]
    rows = [[*codec.open([Message("user", content)]), *prefix] for content in contents]
    logits = torch.stack([model(input_ids=torch.tensor([row])).logits[0, -1, columns] for row in rows])
    return logits.softmax(-1).numpy()


def spread(distributions: np.ndarray) -> float:
    """The mean total variation between a row and the mean of the rows."""
    return float(np.abs(distributions - distributions.mean(0)).sum(1).mean() / 2)
