"""Constrained decoding: what is sampled follows the schema, whatever the model would rather say; log-probs are the free policy's."""

import asyncio
import json
import math
import sys
from collections.abc import Iterator

import pytest
import torch
from helpers.models import tiny_model, tiny_tokenizer
from transformers import AutoTokenizer

from complementary_rl.chat.codec import ChatCodec
from complementary_rl.engines.grammar import check_constrained_decoding
from complementary_rl.engines.local.draw import draw
from complementary_rl.engines.local.engine import LocalEngine
from complementary_rl.engines.protocol import SampleRequest, SamplingParams, TrainingSample
from complementary_rl.errors import UserError
from complementary_rl.experience.operation_schemas import distillation_schema, merge_schema
from complementary_rl.experience.operations import parse_distillation, parse_merge
from complementary_rl.models.names import resolve
from complementary_rl.types import Generation

pytest.importorskip("llguidance")

PROMPT = (2, 8, 9, 10)
ROOM = SamplingParams(max_new_tokens=200)


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    """A random model, which never writes a list on its own."""
    tokenizer = AutoTokenizer.from_pretrained(resolve("embedded:extractor"))
    model = tiny_model(context=512, vocab_size=len(tokenizer) + 16)  # models often embed more than their tokenizer has
    engine = LocalEngine("extractor", model, tokenizer, stop_ids=ChatCodec(tokenizer).stop_ids, max_context=512)
    yield engine
    engine.close()


def sample(engine: LocalEngine, schemas: list[str | None], params: SamplingParams = ROOM) -> list[Generation]:
    requests = [SampleRequest(str(seed), PROMPT, seed, schema=schema) for seed, schema in enumerate(schemas)]
    return asyncio.run(engine.sample(requests, params))


def text(engine: LocalEngine, generation: Generation) -> str:
    return str(engine.tokenizer.decode(list(generation.token_ids), skip_special_tokens=True))


def test_a_random_model_writes_operations(engine: LocalEngine) -> None:
    schema = distillation_schema(2, max_operations=3, max_chars=12)
    generations = sample(engine, [schema] * 24)
    finished = [generation for generation in generations if generation.stop_reason == "stop"]
    assert len(finished) >= 20
    kinds = set()
    for generation in finished:
        parsed = parse_distillation(text(engine, generation), shown=[7, 9], max_operations=3)
        assert parsed.parsable and not parsed.repaired
        assert not parsed.problems.keys() - {"repeated_id", "repeated_text", "empty_text"}, "what a schema cannot say"
        kinds |= {operation.kind for operation in parsed.operations}
    assert kinds == {"add", "update", "return"}


def test_merges_and_nothing_else(engine: LocalEngine) -> None:
    for generation in sample(engine, [merge_schema(3, max_chars=12)] * 8):
        if generation.stop_reason == "stop":
            answer = text(engine, generation)
            assert {element["op"] for element in json.loads(answer)} <= {"keep", "drop", "merge"}
            assert not parse_merge(answer, shown=[4, 5, 6]).repaired


def test_nothing_shown_means_nothing_to_update_or_to_merge() -> None:
    assert "update" not in distillation_schema(0, max_operations=2, max_chars=9)
    assert "merge" not in merge_schema(1, max_chars=9)


def test_logprobs_are_those_the_trainer_computes(engine: LocalEngine) -> None:
    generations = sample(
        engine, [distillation_schema(0, max_operations=1, max_chars=12)] * 4, SamplingParams(0.7, max_new_tokens=60)
    )
    samples = [
        TrainingSample(
            g.prompt_ids + g.token_ids,
            (False,) * len(PROMPT) + (True,) * len(g.token_ids),
            (0.0,) * len(PROMPT) + g.logprobs,
            advantage=1.0,
            weight=1.0,
            temperature=0.7,
        )
        for g in generations
    ]
    for row, training in zip(asyncio.run(engine.logprobs(samples)), samples, strict=True):
        assert torch.allclose(row, torch.tensor(training.logprobs), atol=1e-4)
    assert min(min(g.logprobs) for g in generations) < -3, "forced tokens were unlikely to the model, and are recorded so"


def test_other_rows_of_the_batch_are_left_alone(engine: LocalEngine) -> None:
    schema = distillation_schema(0, max_operations=1, max_chars=12)
    together = sample(engine, [None, schema, None, schema])
    apart = sample(engine, [None] * 4)
    assert [together[i].token_ids for i in (0, 2)] == [apart[i].token_ids for i in (0, 2)]
    assert [together[i].logprobs for i in (0, 2)] == [pytest.approx(apart[i].logprobs, abs=1e-5) for i in (0, 2)]


def test_drawing_among_the_allowed_keeps_their_proportions() -> None:
    logits = torch.log(torch.tensor([[0.1, 0.4, 0.2, 0.3]])).expand(3, -1)
    allowed = torch.tensor([[True, False, False, True]]).expand(3, -1)
    tokens, logprobs = draw(logits, torch.tensor([0.0, 0.24, 0.26], dtype=torch.float64), SamplingParams(), allowed)
    assert tokens.tolist() == [0, 0, 3]
    assert logprobs.tolist() == pytest.approx([math.log(p) for p in (0.1, 0.1, 0.3)], abs=1e-6)
    assert draw(logits, torch.zeros(3), SamplingParams(temperature=0), allowed)[0].tolist() == [3, 3, 3]
    hopeless = torch.tensor([[0.0, -1e4]])
    token, logprob = draw(hopeless, torch.tensor([0.5], dtype=torch.float64), SamplingParams(), torch.tensor([[False, True]]))
    assert token.tolist() == [1] and logprob.item() == pytest.approx(-1e4)


def test_what_cannot_be_constrained_is_said_before_training(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    check_constrained_decoding(engine.tokenizer)
    with pytest.raises(UserError, match="does not know this kind of tokenizer"):
        check_constrained_decoding(tiny_tokenizer())
    monkeypatch.setitem(sys.modules, "llguidance.hf", None)
    with pytest.raises(UserError, match=r"pip install 'complementary-rl\[constrained\]'"):
        check_constrained_decoding(engine.tokenizer)
