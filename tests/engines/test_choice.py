"""Choices: a completion is one of a few texts, and sampler and trainer agree on a policy that can say nothing else."""

import asyncio
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from helpers.models import tiny_model
from transformers import AutoTokenizer

from complementary_rl.chat.codec import ChatCodec
from complementary_rl.engines.local.engine import LocalEngine
from complementary_rl.engines.local.microbatch import collate
from complementary_rl.engines.local.scoring import score
from complementary_rl.engines.protocol import Choice, LossTerm, OptimParams, SampleRequest, SamplingParams, TrainingSample
from complementary_rl.models.names import resolve
from complementary_rl.objectives.grpo import GrpoLoss
from complementary_rl.objectives.samples import generation_sample
from complementary_rl.types import Generation

pytest.importorskip("llguidance")

PROMPT = (2, 8, 9, 10)
TEXTS = ("go north", "go north east", "look [around]*", "é|(x")
WARM = SamplingParams(0.7, max_new_tokens=40)


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    """A random model, which never says any of the texts on its own."""
    made = new_engine()
    yield made
    made.close()


def new_engine() -> LocalEngine:
    tokenizer = AutoTokenizer.from_pretrained(resolve("embedded:extractor"))
    model = tiny_model(context=512, vocab_size=len(tokenizer) + 16)
    return LocalEngine("actor", model, tokenizer, stop_ids=ChatCodec(tokenizer).stop_ids, max_context=512)


def sample(
    engine: LocalEngine, choices: list[Choice | None], params: SamplingParams = WARM, prompt: tuple[int, ...] = PROMPT
) -> list[Generation]:
    requests = [SampleRequest(str(seed), prompt, seed, choice=choice) for seed, choice in enumerate(choices)]
    return asyncio.run(engine.sample(requests, params))


def text(engine: LocalEngine, generation: Generation) -> str:
    return str(engine.tokenizer.decode(list(generation.token_ids), skip_special_tokens=True))


def samples_of(generations: list[Generation]) -> list[TrainingSample]:
    return [generation_sample(generation, advantage=1.0, weight=1.0) for generation in generations]


def test_one_of_the_texts_is_said_whole(engine: LocalEngine) -> None:
    generations = sample(engine, [Choice(TEXTS)] * 40)
    said = Counter(text(engine, generation) for generation in generations)
    assert set(said) <= set(TEXTS) and len(said) >= 3
    assert all(generation.stop_reason == "stop" for generation in generations)
    assert sample(engine, [Choice(TEXTS)] * 40) == generations


def test_logprobs_are_of_the_distribution_drawn_from_and_the_trainer_agrees(engine: LocalEngine) -> None:
    generations = sample(engine, [Choice(TEXTS)] * 8)
    for generation in generations:
        assert len(generation.allowed) == len(generation.token_ids) == len(generation.logprobs)
        for token, allowed, logprob in zip(generation.token_ids, generation.allowed, generation.logprobs, strict=True):
            assert token in allowed
            if len(allowed) == 1:
                assert logprob == pytest.approx(0, abs=1e-6), "what is forced was certain"
    assert any(len(allowed) > 1 for generation in generations for allowed in generation.allowed)
    samples = samples_of(generations)
    for row, training in zip(asyncio.run(engine.logprobs(samples)), samples, strict=True):
        assert torch.allclose(row, torch.tensor(training.logprobs), atol=1e-5)
    unaware = [replace(each, allowed=()) for each in samples]
    assert asyncio.run(engine.logprobs(unaware))[0].sum() < min(map(sum, (each.logprobs for each in samples))) - 3


def test_the_chances_of_all_texts_sum_to_one(engine: LocalEngine) -> None:
    """The draws are those of a policy over texts: what is recorded is their frequency."""
    generations = sample(engine, [Choice(("a", "b"))] * 200, SamplingParams(max_new_tokens=4))
    chance = {text(engine, generation): math.exp(sum(generation.logprobs)) for generation in generations}
    assert set(chance) == {"a", "b"} and sum(chance.values()) == pytest.approx(1, abs=1e-4)
    share = sum(text(engine, generation) == "a" for generation in generations) / 200
    assert share == pytest.approx(chance["a"], abs=0.12)


def test_free_rows_of_the_batch_are_left_alone(engine: LocalEngine) -> None:
    choice = Choice(TEXTS)
    mixed = sample(engine, [None, choice, None, choice])
    apart = sample(engine, [None] * 4)
    assert [mixed[i].token_ids for i in (0, 2)] == [apart[i].token_ids for i in (0, 2)]
    assert mixed[0].allowed == ()
    samples = samples_of(mixed)
    assert samples[0].allowed == () and samples[1].allowed
    for row, training in zip(asyncio.run(engine.logprobs(samples)), samples, strict=True):
        assert torch.allclose(row, torch.tensor(training.logprobs), atol=1e-5)


def test_thinking_comes_first_and_is_free(engine: LocalEngine) -> None:
    opening, closing = 20, 21
    begun = sample(engine, [Choice(("a", "b"), closing=closing)] * 12, SamplingParams(max_new_tokens=200))
    done = [generation for generation in begun if generation.stop_reason == "stop" and closing in generation.token_ids]
    assert done
    for generation in done:
        end = generation.token_ids.index(closing)
        assert generation.allowed[: end + 1] == ((),) * (end + 1) and all(generation.allowed[end + 1 :])
        assert text(engine, replace(generation, token_ids=generation.token_ids[end + 1 :])).strip(" \n") in ("a", "b")
    chosen = sample(engine, [Choice(("a", "b"), opening, closing)] * 30, SamplingParams(max_new_tokens=6))
    assert all(opening in generation.allowed[0] for generation in chosen)
    thought = [generation.token_ids[0] == opening for generation in chosen]
    assert any(thought) and not all(thought)
    assert {text(engine, each).strip(" \n") for each, thinks in zip(chosen, thought, strict=True) if not thinks} <= {"a", "b"}


def test_training_moves_the_choice_and_nothing_that_was_ruled_out() -> None:
    engine = new_engine()
    try:
        before = dict(Counter(text(engine, each) for each in sample(engine, [Choice(("a", "b"))] * 60, SamplingParams())))
        for _ in range(4):
            generations = sample(engine, [Choice(("a", "b"))] * 32, SamplingParams())
            samples = [
                replace(each, advantage=1.0 if text(engine, generation) == "b" else -1.0, weight=1 / 32)
                for each, generation in zip(samples_of(generations), generations, strict=True)
            ]
            metrics = asyncio.run(
                engine.update([LossTerm("actor", samples, GrpoLoss(ratio="token", clip_epsilon=0.2))], OptimParams(lr=3e-3))
            )
            assert not metrics["skipped"]
            asyncio.run(engine.publish())
        after = Counter(text(engine, each) for each in sample(engine, [Choice(("a", "b"))] * 60, SamplingParams()))
        assert after["b"] > before.get("b", 0) + 5 or after["b"] == 60
    finally:
        engine.close()


def test_entropy_is_that_of_the_choice(engine: LocalEngine) -> None:
    decoder = engine._trainer.decoder
    training = TrainingSample((5, 6, 7), (False, True, True), (0.0, -1.0, -1.0), 1.0, 1.0, 1.0, ((), (6,), (7, 8)))
    with torch.no_grad():
        logprobs, entropy = score(decoder, collate([training], decoder.device), entropy=True)
    assert entropy is not None
    chance = logprobs[0, 2].exp().item()
    assert logprobs[0, 1].item() == entropy[0, 1].item() == 0
    assert entropy[0, 2].item() == pytest.approx(-(chance * math.log(chance) + (1 - chance) * math.log(1 - chance)), abs=1e-5)


def test_what_cannot_be_asked_or_trained_is_refused(engine: LocalEngine) -> None:
    with pytest.raises(ValueError, match="needs a text to choose"):
        sample(engine, [Choice(())])
    with pytest.raises(ValueError, match="a schema and a choice"):
        asyncio.run(engine.sample([SampleRequest("x", PROMPT, 1, schema="{}", choice=Choice(("a",)))], WARM))
    with pytest.raises(ValueError, match="what was allowed is told of 1"):
        asyncio.run(engine.logprobs([TrainingSample((5, 6), (False, True), (0.0, 0.0), 1.0, 1.0, 1.0, ((6,),))]))
