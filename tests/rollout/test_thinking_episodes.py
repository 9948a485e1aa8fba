"""Episodes of an actor that thinks, with a template that drops the thinking of earlier turns."""

from helpers.chat_tokenizers import make_tokenizer
from helpers.rollouts import HINT, answer, plan, play

from complementary_rl.objectives.distillation import distillation_samples
from complementary_rl.objectives.samples import trajectory_samples

SAYS = [f"<think>\n{thought}\n</think>\n\ngo" for thought in ("far", "near", "here")]


def rendered(*replies: str, first: str = "Say go three times.\nlevel 0, start 0") -> list[int]:
    """What the template makes of an episode up to its next turn."""
    messages = [{"role": "user", "content": first}]
    for number, reply in enumerate(replies):
        messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": f"heard {number + 1}"}]
    ids: list[int] = make_tokenizer("qwen3").apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    return ids


def test_dropped_thinking_gives_the_prompts_of_the_template_and_a_sample_each() -> None:
    tokenizer = make_tokenizer("qwen3")
    played = play([plan()], {"e": SAYS}, tokenizer=tokenizer, earlier_thinking="drop")
    prompts = [list(request.prompt_ids) for request in played.actor.requests]
    assert prompts == [rendered(), rendered(SAYS[0]), rendered(*SAYS[:2])]
    samples = trajectory_samples(played.episodes["e"], 1.0, 0.5)
    said = [tokenizer(text + "<|im_end|>", add_special_tokens=False)["input_ids"] for text in SAYS]
    assert [list(sample.token_ids) for sample in samples] == [prompt + ids for prompt, ids in zip(prompts, said, strict=True)]
    assert [sum(sample.mask) for sample in samples] == [len(ids) for ids in said]
    assert sum(sample.weight for sample in samples) == 0.5
    for request, sample in zip(played.actor.requests, samples, strict=True):
        assert sample.mask == (False,) * len(request.prompt_ids) + (True,) * (len(sample.mask) - len(request.prompt_ids))


def test_kept_thinking_is_one_growing_sample() -> None:
    played = play([plan()], {"e": SAYS}, tokenizer=make_tokenizer("qwen3"))
    [sample] = trajectory_samples(played.episodes["e"], 1.0, 0.5)
    assert sample.token_ids[: len(played.actor.requests[-1].prompt_ids)] == played.actor.requests[-1].prompt_ids
    assert played.actor.tokenizer.decode(sample.token_ids).count("<think>") == 3


def test_an_actor_that_does_not_think_has_nothing_dropped() -> None:
    played = play([plan()], tokenizer=make_tokenizer("qwen3"), earlier_thinking="drop")
    assert len(trajectory_samples(played.episodes["e"], 1.0, 1.0)) == 1


def test_the_environment_hears_the_action_and_not_the_thinking() -> None:
    script = ["<think>\nI could <ask>where?</ask>\n</think>\n\n go ", "<think>\nendless"]
    played = play([plan(shown=HINT, tool=True)], {"e": script}, tokenizer=make_tokenizer("qwen3"), ask=answer)
    assert [turn.action for turn in played.episodes["e"].turns] == ["go", "", "go"]
    assert played.asked == [], "what is only thought of is not asked"


def test_self_distillation_of_a_thinking_episode_never_sees_experience() -> None:
    script = ["<think>\nfar\n</think>\n\n<ask>where?</ask>", *SAYS]
    tokenizer = make_tokenizer("qwen3")
    played = play([plan(shown=HINT, tool=True)], {"e": script}, tokenizer=tokenizer, ask=answer, earlier_thinking="drop")
    samples = distillation_samples([played.episodes["e"]], of=1, token_mean=True)
    prompts = [rendered(), rendered(SAYS[0]), rendered(*SAYS[:2])]
    said = [tokenizer(text + "<|im_end|>", add_special_tokens=False)["input_ids"] for text in SAYS]
    assert [list(sample.token_ids) for sample in samples] == [prompt + ids for prompt, ids in zip(prompts, said, strict=True)]
