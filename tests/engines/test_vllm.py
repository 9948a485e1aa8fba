"""Sampling from servers that answer as vLLM's: the same weights, versions, seeds and budgets as the protocol promises."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.models import STOP_ID, save_tiny_model
from helpers.vllm_server import FakeVllm

from complementary_rl.config import ModelConfig, VllmConfig
from complementary_rl.engines import make_engine
from complementary_rl.engines.protocol import Engine, LossTerm, OptimParams, SampleRequest, SamplingParams
from complementary_rl.errors import InfrastructureError, UserError
from complementary_rl.objectives.distillation import NextTokenLoss
from complementary_rl.objectives.samples import generation_sample
from complementary_rl.types import Generation

OPTIM = OptimParams(lr=1e-2)
PARAMS = SamplingParams(temperature=0.7, max_new_tokens=6)
REQUESTS = [SampleRequest(str(n), tuple(range(5, 5 + n)), seed=n << 60 | n) for n in (3, 3, 9, 20)]
LORA = {"rank": 4, "alpha": 8}

Make = Callable[..., tuple[Engine, list[FakeVllm]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture
def make(folder: Path, tmp_path: Path) -> Iterator[Make]:
    opened: list[Engine | FakeVllm] = []

    def made(*, servers: int = 1, lora: object = None, fault_budget: int = 2, **server: object) -> tuple[Engine, list[FakeVllm]]:
        fakes = [FakeVllm(folder, **server) for _ in range(servers)]
        opened.extend(fakes)
        settings = VllmConfig(
            urls=tuple(fake.url for fake in fakes), exchange=tmp_path, timeout=10, restart_timeout=1, fault_budget=fault_budget
        )
        model = ModelConfig.model_validate({"path": str(folder), "device": "cpu", "lora": lora})
        engine = make_engine("actor", model, vllm=settings)
        opened.append(engine)
        return engine, fakes

    yield made
    for thing in reversed(opened):
        thing.close()


def sample(engine: Engine, requests: list[SampleRequest] = REQUESTS, params: SamplingParams = PARAMS) -> list[Generation]:
    return asyncio.run(engine.sample(requests, params))


def train_and_publish(engine: Engine, generations: list[Generation]) -> None:
    async def scenario() -> None:
        samples = [generation_sample(generation, advantage=1.0, weight=1.0) for generation in generations]
        await engine.update([LossTerm("imitate", samples, NextTokenLoss())], OPTIM)
        await engine.publish()

    asyncio.run(scenario())


def assert_trainable(engine: Engine, generations: list[Generation]) -> None:
    """The trainer finds the log-probs that the server told, to a hair."""
    samples = [generation_sample(generation, advantage=1.0, weight=1.0) for generation in generations]
    for generation, row in zip(generations, asyncio.run(engine.logprobs(samples)), strict=True):
        assert generation.logprobs == pytest.approx(row.tolist()[len(generation.prompt_ids) :], abs=1e-4)


def test_what_is_sampled_can_be_trained_and_depends_on_the_seed_alone(make: Make) -> None:
    engine, (server,) = make()
    generations = sample(engine)
    assert [g.id for g in generations] == [r.id for r in REQUESTS]
    assert generations[0].token_ids == generations[1].token_ids
    assert [(g.version, g.temperature) for g in generations] == [(0, 0.7)] * 4
    assert all(g.stop_reason == ("stop" if g.token_ids[-1] == STOP_ID else "length") for g in generations)
    assert_trainable(engine, generations)
    assert [g.token_ids for g in sample(engine, REQUESTS[::-1])] == [g.token_ids for g in generations[::-1]]
    # Nothing of the model's generation_config.json may get in.
    assert {"top_p", "top_k", "min_p", "repetition_penalty", "ignore_eos"} <= server.bodies[-1].keys()


@pytest.mark.parametrize("lora", [None, LORA])
def test_a_publication_changes_what_is_sampled(make: Make, lora: object) -> None:
    engine, servers = make(servers=2, lora=lora)
    before = sample(engine)
    train_and_publish(engine, before)
    assert engine.version == 1
    after = sample(engine)
    assert {g.version for g in after} == {1}
    assert after[3].logprobs != before[3].logprobs
    assert_trainable(engine, after)
    if lora:
        assert [len(server.adapters) for server in servers] == [1, 1]
    engine.close()
    assert not any(server.adapters for server in servers)


@pytest.mark.parametrize(("lora", "path"), [(None, "/collective_rpc"), (LORA, "/v1/load_lora_adapter")])
def test_a_failed_publication_leaves_the_old_version_serving(make: Make, lora: object, path: str) -> None:
    engine, servers = make(servers=2, lora=lora)
    before = sample(engine)
    servers[1].fail(path, 400)
    with pytest.raises(ValueError, match="made to fail"):
        train_and_publish(engine, before)
    assert engine.version == 0
    assert sample(engine) == before
    assert asyncio.run(engine.publish()) == 2
    assert_trainable(engine, sample(engine))


@pytest.mark.parametrize("lora", [None, LORA])
@pytest.mark.parametrize("seen", [True, False])
def test_a_restarted_server_gets_the_weights_again(make: Make, lora: object, seen: bool) -> None:
    engine, (server,) = make(lora=lora)
    train_and_publish(engine, sample(engine))
    before = sample(engine)
    if seen:
        server.fail("/v1/completions", 0)
    server.restart()
    assert sample(engine) == before
    events = engine.take_events()
    assert events
    assert all("asked again after" in event for event in events)


def test_faults_are_repeated_within_a_budget_and_refusals_never(make: Make) -> None:
    engine, (server,) = make(fault_budget=2)
    before = sample(engine)
    server.fail("/v1/completions", 503)
    assert sample(engine) == before
    server.calls.clear()
    server.fail("/v1/completions", 400)
    with pytest.raises(ValueError, match="HTTP 400"):
        sample(engine, REQUESTS[:1])
    assert server.calls.count("/v1/completions") == 1
    server.fail("/v1/completions", 503, times=2)
    with pytest.raises(InfrastructureError, match=r"more than actor.vllm.fault_budget = 2"):
        sample(engine, REQUESTS[:1])


def test_a_full_context_ends_a_generation(make: Make) -> None:
    engine, _ = make()
    full = SampleRequest("full", (7,) * engine.max_context, seed=0)
    nearly = replace(full, id="nearly", prompt_ids=(7,) * (engine.max_context - 2))
    none, some = sample(engine, [full, nearly])
    assert (none.token_ids, none.stop_reason) == ((), "context")
    assert len(some.token_ids) <= 2
    assert some.stop_reason in ("context", "stop")


def test_a_loaded_checkpoint_is_served(make: Make, tmp_path: Path) -> None:
    engine, _ = make()
    train_and_publish(engine, sample(engine))
    trained = sample(engine)
    engine.save(tmp_path / "saved")
    engine.close()
    resumed, _ = make()
    resumed.load(tmp_path / "saved")
    assert sample(resumed) == trained


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ({"logprobs_mode": "raw_logprobs"}, "--logprobs-mode processed_logprobs"),
        ({"max_model_len": 64}, "--max-model-len 256"),
        ({"dev_mode": False}, "VLLM_SERVER_DEV_MODE=1"),
    ],
)
def test_a_server_that_cannot_be_used_is_refused_at_the_start(make: Make, server: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make(**server)


def test_a_server_that_takes_no_adapters_is_refused_at_the_start(make: Make) -> None:
    with pytest.raises(UserError, match="--enable-lora"):
        make(lora=LORA, takes_lora=False)


def test_a_schema_is_refused(make: Make) -> None:
    engine, _ = make()
    with pytest.raises(ValueError, match="schema"):
        sample(engine, [replace(REQUESTS[0], schema="{}")])
