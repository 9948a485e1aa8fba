"""The engine as its callers see it: versions, checkpoints that continue bit for bit, export, and work that does not block."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.models import tiny_engine, tiny_tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from complementary_rl.engines.local.engine import LocalEngine
from complementary_rl.engines.protocol import LossTerm, OptimParams, SampleRequest, SamplingParams, TrainingSample
from complementary_rl.errors import CheckpointError
from complementary_rl.objectives.distillation import NextTokenLoss

OPTIM = OptimParams(lr=1e-2)
PROMPTS = [tuple(range(5, 5 + n)) for n in (3, 9, 20)]


@pytest.fixture
def engine() -> Iterator[LocalEngine]:
    made = tiny_engine()
    yield made
    made.close()


def requests(seed: int = 0, *, sessions: bool = False) -> list[SampleRequest]:
    return [SampleRequest(str(i), ids, seed + i, f"s{i}" if sessions else None) for i, ids in enumerate(PROMPTS)]


def term(shift: int = 0) -> LossTerm:
    ids = [tuple(5 + (i * 7 + shift + j) % 100 for i in range(12)) for j in range(4)]
    return LossTerm("imitate", [TrainingSample(x, (False, *[True] * 11), (0.0,) * 12, 1.0, 1 / 44) for x in ids], NextTokenLoss())


async def sample(engine: LocalEngine, seed: int = 0, *, sessions: bool = False) -> list[tuple[Any, ...]]:
    generations = await engine.sample(requests(seed, sessions=sessions), SamplingParams(max_new_tokens=8))
    return [(g.token_ids, g.logprobs, g.version) for g in generations]


def test_sampling_changes_only_with_publish(engine: LocalEngine) -> None:
    async def scenario() -> None:
        before = await sample(engine, sessions=True)
        assert (await engine.update([term()], OPTIM))["skipped"] == 0
        again = await sample(engine, sessions=True)
        assert [(g[0], g[2]) for g in again] == [(g[0], g[2]) for g in before]
        assert await engine.publish() == engine.version == 1
        after = await sample(engine, sessions=True)
        assert [g[0] for g in after] != [g[0] for g in before]
        assert {g[2] for g in after} == {1}
        # A cache of the old weights would show here.
        fresh = await sample(engine)
        for (_, cached, _), (_, read, _) in zip(after, fresh, strict=True):
            assert cached == pytest.approx(read, abs=1e-5)

    asyncio.run(scenario())


def test_training_brings_the_loss_down(engine: LocalEngine) -> None:
    async def scenario() -> list[float]:
        return [(await engine.update([term()], OPTIM))["imitate/loss"] for _ in range(20)]

    losses = asyncio.run(scenario())
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize(("family", "publish_last"), [("llama", True), ("llama", False), ("qwen3", True)])
def test_a_loaded_engine_continues_bit_for_bit(tmp_path: Path, family: str, publish_last: bool) -> None:
    async def work(engine: LocalEngine, first: int, last: int) -> list[Any]:
        seen: list[Any] = []
        for step in range(first, last):
            seen.append(await sample(engine, seed=10 * step))
            seen.append(await engine.update([term(step)], OPTIM))
            if publish_last or step != 2:
                await engine.publish()
        return seen

    unbroken = tiny_engine(family)
    asyncio.run(work(unbroken, 0, 3))
    unbroken.save(tmp_path / "actor")
    rest = asyncio.run(work(unbroken, 3, 6))

    resumed = tiny_engine(family, seed=7)
    resumed.load(tmp_path / "actor")
    assert resumed.version == (3 if publish_last else 2)
    assert asyncio.run(work(resumed, 3, 6)) == rest
    ours, theirs = resumed._trained_parameters, unbroken._trained_parameters
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    for engine in (unbroken, resumed):
        engine.close()


def test_saving_replaces_an_older_checkpoint(engine: LocalEngine, tmp_path: Path) -> None:
    engine.save(tmp_path / "actor")
    asyncio.run(engine.publish())
    engine.save(tmp_path / "actor")
    other = tiny_engine()
    other.load(tmp_path / "actor")
    assert other.version == 1
    assert [path.name for path in tmp_path.iterdir()] == ["actor"]
    other.close()


def test_a_save_that_fails_keeps_the_older_checkpoint(engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from complementary_rl.engines.local import checkpoint

    engine.save(tmp_path / "actor")

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    asyncio.run(engine.publish())
    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(OSError, match="No space left"):
        engine.save(tmp_path / "actor")
    other = tiny_engine()
    other.load(tmp_path / "actor")
    assert other.version == 0
    assert [path.name for path in tmp_path.iterdir()] == ["actor"]
    other.close()


@pytest.mark.parametrize("missing", ["engine.json", "weights.safetensors", "optimizer.safetensors"])
def test_incomplete_checkpoints_are_refused_and_change_nothing(engine: LocalEngine, tmp_path: Path, missing: str) -> None:
    other = tiny_engine(seed=3)
    asyncio.run(other.update([term()], OPTIM))
    other.save(tmp_path / "actor")
    other.close()
    before = asyncio.run(sample(engine))
    damaged = tmp_path / "actor" / missing
    damaged.write_bytes(damaged.read_bytes()[:40])
    with pytest.raises(CheckpointError, match="read"):
        engine.load(tmp_path / "actor")
    damaged.unlink()
    with pytest.raises(CheckpointError, match="read"):
        engine.load(tmp_path / "actor")
    assert asyncio.run(sample(engine)) == before


def test_checkpoints_of_other_models_are_refused(engine: LocalEngine, tmp_path: Path) -> None:
    for made in (tiny_engine("qwen3"), tiny_engine(name="extractor"), tiny_engine(vocab_size=120)):
        made.save(tmp_path / "other")
        made.close()
        with pytest.raises(CheckpointError, match="another model"):
            engine.load(tmp_path / "other")
    with pytest.raises(CheckpointError, match="no engine checkpoint"):
        engine.load(tmp_path / "nowhere")


def test_export_is_a_normal_hugging_face_folder(engine: LocalEngine, tmp_path: Path) -> None:
    async def train() -> None:
        await engine.update([term()], OPTIM)
        await engine.publish()

    asyncio.run(train())
    engine.export(tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    ids = torch.tensor([PROMPTS[2]])
    with torch.no_grad():
        assert torch.equal(model(input_ids=ids).logits, engine._trainer.decoder.model(input_ids=ids).logits)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    messages = [{"role": "user", "content": "at 3 4"}]
    ours, theirs = (
        t.apply_chat_template(messages, add_generation_prompt=True, tokenize=False) for t in (tokenizer, tiny_tokenizer())
    )
    assert ours == theirs == "<|user|>at 3 4<|end|><|assistant|>"


def test_sampling_while_updating_serves_one_version_and_never_blocks_the_loop(engine: LocalEngine) -> None:
    async def scenario() -> None:
        beats = 0

        async def heartbeat() -> None:
            nonlocal beats
            while True:
                await asyncio.sleep(0.001)
                beats += 1

        async def sampling() -> list[int]:
            return [version for _ in range(20) for _, _, version in await sample(engine, sessions=True)]

        pulse = asyncio.create_task(heartbeat())
        versions = asyncio.create_task(sampling())
        for _ in range(5):
            await engine.update([term()], OPTIM)
            await engine.publish()
        seen = await versions
        pulse.cancel()
        assert seen == sorted(seen)
        assert beats > 3

    asyncio.run(scenario())


def test_a_cancelled_call_does_not_hold_up_the_next(engine: LocalEngine) -> None:
    async def scenario() -> None:
        running = [asyncio.create_task(sample(engine)) for _ in range(3)]
        await asyncio.sleep(0)
        for task in running[1:]:
            task.cancel()
        assert len(await running[0]) == len(PROMPTS)
        assert len(await sample(engine)) == len(PROMPTS)

    asyncio.run(scenario())


def test_compute_time_is_accounted(engine: LocalEngine) -> None:
    async def scenario() -> None:
        await sample(engine)
        await engine.update([term()], OPTIM)
        await engine.logprobs(term().samples)
        await engine.publish()

    start = time.perf_counter()
    asyncio.run(scenario())
    elapsed = time.perf_counter() - start
    assert set(engine.compute_seconds) == {"sample", "update", "logprobs", "publish"}
    assert all(seconds > 0 for seconds in engine.compute_seconds.values())
    assert sum(engine.compute_seconds.values()) <= elapsed


def test_close_is_idempotent_and_final(tmp_path: Path) -> None:
    engine = tiny_engine()
    engine.close()
    engine.close()
    engine.release(["s"])
    with pytest.raises(RuntimeError, match="closed"):
        engine.save(tmp_path / "x")
    assert not list(tmp_path.iterdir())
