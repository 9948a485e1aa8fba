"""LoRA through the local engine: only adapters train, travel to the sampler, are saved and exported; the start model is the reference."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
import torch
from helpers.models import save_tiny_model

from complementary_rl.config import ModelConfig
from complementary_rl.engines import make_engine
from complementary_rl.engines.local.engine import LocalEngine
from complementary_rl.engines.protocol import LossTerm, OptimParams, SampleRequest, SamplingParams, TrainingSample
from complementary_rl.errors import CheckpointError, UserError
from complementary_rl.objectives.grpo import GrpoLoss

pytest.importorskip("peft")

PROMPT = (2, 8, 9, 10)
OPTIM = OptimParams(lr=1e-2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model"))


def lora_engine(folder: Path, *, keep_reference: bool = False, **settings: object) -> LocalEngine:
    config = {"path": str(folder), "device": "cpu", "lora": {"rank": 4}, **settings}
    engine = make_engine("actor", ModelConfig.model_validate(config), keep_reference=keep_reference)
    assert isinstance(engine, LocalEngine)
    return engine


def sampled(engine: LocalEngine, seed: int = 0) -> list[TrainingSample]:
    requests = [SampleRequest(str(i), PROMPT, 1000 * seed + i) for i in range(6)]
    generations = asyncio.run(engine.sample(requests, SamplingParams(max_new_tokens=12)))
    return [
        TrainingSample(
            g.prompt_ids + g.token_ids,
            (False,) * len(g.prompt_ids) + (True,) * len(g.token_ids),
            (0.0,) * len(g.prompt_ids) + g.logprobs,
            advantage=1.0 if i % 2 else -1.0,
            weight=1 / 6,
        )
        for i, g in enumerate(generations)
    ]


def train(engine: LocalEngine, steps: int = 1, start: int = 0) -> None:
    for step in range(start, start + steps):
        metrics = asyncio.run(
            engine.update([LossTerm("actor", sampled(engine, step), GrpoLoss(ratio="token", clip_epsilon=10))], OPTIM)
        )
        assert metrics["skipped"] == 0 and metrics["grad_norm"] > 0
        asyncio.run(engine.publish())


def disagreement(engine: LocalEngine, samples: list[TrainingSample]) -> float:
    logprobs = asyncio.run(engine.logprobs(samples))
    return max(float((row - torch.tensor(sample.logprobs)).abs().max()) for row, sample in zip(logprobs, samples, strict=True))


def parameters(engine: LocalEngine) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in engine.model.named_parameters()}


def test_only_adapters_change_and_the_base_is_in_memory_once(folder: Path) -> None:
    engine = lora_engine(folder, keep_reference=True)
    before = parameters(engine)
    train(engine)
    changed = {name for name, value in parameters(engine).items() if not torch.equal(value, before[name])}
    assert changed and all("lora_" in name for name in changed)
    trainer, sampler, reference = (
        dict(decoder.model.named_parameters())
        for decoder in (engine._trainer.decoder, engine._sampler.decoder, engine._trainer.reference)  # type: ignore[union-attr]
    )
    for name, parameter in trainer.items():
        shared = {other[name].data_ptr() == parameter.data_ptr() for other in (sampler, reference)}
        assert shared == {"lora_" not in name}
    engine.close()


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("bfloat16", 0.15)])
def test_sampler_and_trainer_agree_after_updates(folder: Path, dtype: str, tolerance: float) -> None:
    engine = lora_engine(folder, dtype=dtype)
    start = sampled(engine)
    train(engine, 2)
    assert disagreement(engine, sampled(engine)) < tolerance
    assert disagreement(engine, start) > 0.2, "the update must have moved the policy, or agreement shows nothing"
    engine.close()


def test_a_resumed_run_equals_the_unbroken_one_bit_for_bit(folder: Path, tmp_path: Path) -> None:
    unbroken = lora_engine(folder)
    train(unbroken)
    unbroken.save(tmp_path / "saved")
    train(unbroken, start=1)
    resumed = lora_engine(folder)
    resumed.load(tmp_path / "saved")
    train(resumed, start=1)
    for name, value in parameters(unbroken).items():
        assert torch.equal(value, parameters(resumed)[name]), name
    assert sampled(unbroken, 9) == sampled(resumed, 9)
    other = lora_engine(folder, lora={"rank": 2})
    with pytest.raises(CheckpointError, match=r"LoRA of rank 4, not .*LoRA of rank 2"):
        other.load(tmp_path / "saved")
    for engine in (unbroken, resumed, other):
        engine.close()


def test_peft_loads_the_export_and_samples_alike(folder: Path, tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    engine = lora_engine(folder)
    train(engine)
    engine.export(tmp_path / "adapter")
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"} <= {
        p.name for p in (tmp_path / "adapter").iterdir()
    }
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    settings = (tmp_path / "adapter" / "adapter_config.json").read_text()
    assert str(folder.parent) not in settings, "where the base was on this machine is nobody's business"
    assert json.loads(settings)["base_model_name_or_path"] == folder.name
    loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder), tmp_path / "adapter").eval()
    ids = torch.tensor([PROMPT])
    with torch.no_grad():
        assert torch.allclose(loaded(ids).logits, engine._sampler.decoder.model(ids).logits, atol=1e-5)
    engine.close()


def test_the_reference_stays_the_model_without_adapters(folder: Path) -> None:
    engine, base = lora_engine(folder, keep_reference=True), lora_engine(folder)
    train(engine)
    assert engine._trainer.reference is not None
    ids = torch.tensor([PROMPT])
    with torch.no_grad():
        start = base._sampler.decoder.model(ids).logits
        assert torch.equal(engine._trainer.reference.model(ids).logits, start)
        assert not torch.equal(engine._sampler.decoder.model(ids).logits, start)
    engine.close()
    base.close()


def test_unusable_settings_are_explained(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"model\.lora\.targets: .*quack"):
        lora_engine(folder, lora={"targets": ["quack"]})
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(UserError, match=r"pip install 'complementary-rl\[peft\]'"):
        lora_engine(folder)


def model_settings(folder: Path, **settings: object) -> ModelConfig:
    return ModelConfig.model_validate({"path": str(folder), "device": "cpu", "lora": {"rank": 4}, **settings})


def test_a_second_model_with_adapters_stands_on_the_base_of_the_first(folder: Path) -> None:
    first, second = model_settings(folder), model_settings(folder, lora={"rank": 2})
    actor = make_engine("actor", first)
    assert isinstance(actor, LocalEngine)
    extractor = make_engine("extractor", second, beside=(first, actor))
    assert isinstance(extractor, LocalEngine)
    base = {p.data_ptr() for p in actor.model.parameters() if not p.requires_grad}
    assert {p.data_ptr() for p in extractor.model.parameters() if not p.requires_grad} == base
    alone = make_engine("extractor", second)
    assert isinstance(alone, LocalEngine)
    train(actor)
    for engine in (extractor, alone):
        train(engine)
    for name, parameter in parameters(extractor).items():
        assert torch.equal(parameter, parameters(alone)[name]), name


@pytest.mark.parametrize("other", [{"dtype": "bfloat16"}, {"lora": None}, {"attention": "eager"}])
def test_models_that_differ_in_more_than_adapters_share_nothing(folder: Path, other: dict[str, object]) -> None:
    first = model_settings(folder)
    actor = make_engine("actor", first)
    extractor = make_engine("extractor", model_settings(folder, **other), beside=(first, actor))
    assert isinstance(actor, LocalEngine)
    assert isinstance(extractor, LocalEngine)
    assert not {p.data_ptr() for p in extractor.model.parameters()} & {p.data_ptr() for p in actor.model.parameters()}
