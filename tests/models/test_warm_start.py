"""Lessons of experts and the widened embedded actor: what is taught is what won, and what was known stays known."""

import pytest
import torch
from embedded.corpus import actor_dialogue
from embedded.tokenizer import train_tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer
from warm_start import expert_lessons, fitting, shortened, widened

from complementary_rl.envs.registry import make_suite
from complementary_rl.models.embedded import resolve
from complementary_rl.seeds import rng

SOKOBAN = make_suite("sokoban", levels=3)
TASKS = SOKOBAN.tasks("train")


def test_a_lesson_is_an_episode_that_the_expert_won() -> None:
    lessons = expert_lessons(SOKOBAN, 4, 0)
    assert len(lessons) == 4
    assert lessons[0] == lessons[3] != lessons[1]
    for task, lesson in zip(TASKS, lessons, strict=False):
        env = SOKOBAN.make_env()
        assert lesson[0] == f"{task.description}\n{env.reset(task, 0)[0]}"
        *results, last = [env.step(action) for action in lesson[1::2]]
        assert [result[0] for result in results] == lesson[2::2]
        assert last[4]["success"]


def test_a_wider_vocabulary_keeps_what_the_actor_knew() -> None:
    random = rng("warm-start")
    lessons = [actor_dialogue(random, 0.0) for _ in range(200)]
    tokenizer = train_tokenizer([text for lesson in lessons for text in lesson] + ["a plate 1 and a cabinet 2"] * 5, 600, 2048)
    old, known = AutoModelForCausalLM.from_pretrained(resolve("actor")), AutoTokenizer.from_pretrained(resolve("actor"))
    new = widened("embedded:actor", tokenizer, 2048)
    assert new.config.max_position_embeddings == 2048
    assert len(new.get_input_embeddings().weight) == len(tokenizer)
    text = "<|user|>at 3 12<|end|><|assistant|>"
    with torch.no_grad():
        before = old(torch.tensor([known.encode(text)])).logits[0, -1, known.encode("north")[0]]
        after = new(torch.tensor([tokenizer.encode(text)])).logits[0, -1, tokenizer.encode("north")[0]]
    assert before.item() == pytest.approx(after.item(), abs=1e-4)


def test_lessons_are_drawn_so_that_each_source_has_as_many_tokens() -> None:
    tokenizer = AutoTokenizer.from_pretrained(resolve("actor"))
    short, long = ["at 1 1", "north"], ["at 1 1", "north"] * 20
    chosen, shares = fitting({"short": [short], "long": [long, long * 10]}, tokenizer, 400)
    assert chosen == [[short], [long]]
    assert shares[0] > 10 * shares[1]
    with pytest.raises(SystemExit, match="long: none of 1 solved episodes fits 20 tokens"):
        fitting({"long": [long]}, tokenizer, 20)


def test_what_was_told_is_cut_and_what_was_done_is_not() -> None:
    tokenizer = AutoTokenizer.from_pretrained(resolve("actor"))
    told, done = shortened(["at 1 1 " * 50, "north " * 50], tokenizer, 10)
    assert len(told) < 100
    assert done == "north " * 50
