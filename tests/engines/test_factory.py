"""From configuration to engine: every way a model can be unusable has its own message."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from helpers.models import STOP_ID, save_tiny_model, tiny_model, tiny_tokenizer
from safetensors.torch import load_file, save_file

from complementary_rl.config import ModelConfig
from complementary_rl.engines import factory, make_engine
from complementary_rl.engines.factory import check_memory_of
from complementary_rl.engines.local import loading
from complementary_rl.engines.protocol import SampleRequest, SamplingParams
from complementary_rl.errors import UserError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model"))


def model(path: object, **settings: object) -> ModelConfig:
    return ModelConfig.model_validate({"path": str(path), "device": "cpu", **settings})


def test_a_folder_becomes_an_engine(folder: Path) -> None:
    engine = make_engine("actor", model(folder, max_context=32))
    assert (engine.name, engine.version, engine.max_context) == ("actor", 0, 32)
    assert engine.tokenizer.decode([STOP_ID]) == "<|end|>"
    generations = asyncio.run(
        engine.sample([SampleRequest(str(i), (5, 6, 7), i) for i in range(40)], SamplingParams(max_new_tokens=64))
    )
    assert {g.stop_reason for g in generations} == {"stop", "context"}
    engine.close()


def test_narrow_weights_are_served_and_exported_narrow(folder: Path, tmp_path: Path) -> None:
    engine = make_engine("actor", model(folder, dtype="bfloat16"))
    generation = asyncio.run(engine.sample([SampleRequest("x", (5, 6, 7), 1)], SamplingParams(max_new_tokens=4)))[0]
    assert len(generation.token_ids) == 4
    engine.export(tmp_path / "narrow")
    assert json.loads((tmp_path / "narrow" / "config.json").read_text())["dtype"] == "bfloat16"
    engine.close()


def test_unusable_models_are_explained(folder: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    tiny_model().save_pretrained(bare)
    templateless = tiny_tokenizer()
    templateless.chat_template = None
    mismatched = save_tiny_model(tmp_path / "mismatched")
    tiny_model(vocab_size=64).save_pretrained(mismatched)
    (tmp_path / "empty").mkdir()
    cases = {
        "does not exist": model(tmp_path / "nowhere"),
        "no config.json": model(tmp_path / "empty"),
        "no tokenizer": model(bare),
        "chat template": model(save_tiny_model(tmp_path / "templateless", tokenizer=templateless)),
        "do not belong together": model(mismatched),
        "made for 256 tokens": model(folder, max_context=512),
        "device warp": model(folder, device="warp"),
    }
    for message, config in cases.items():
        with pytest.raises(UserError, match=message):
            make_engine("actor", config)


def test_models_without_a_plain_cache_are_refused(tmp_path: Path) -> None:
    from transformers import MambaConfig, MambaForCausalLM

    MambaForCausalLM(MambaConfig(vocab_size=128, hidden_size=16, num_hidden_layers=1, state_size=4)).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(UserError, match="mamba models have layers without a plain key/value cache"):
        make_engine("actor", model(tmp_path, max_context=64))
    with pytest.raises(UserError, match=r"set model\.max_context"):
        make_engine("actor", model(tmp_path))


def damaged(directory: Path, damage: Callable[[dict[str, torch.Tensor]], None]) -> Path:
    """A tiny model whose stored tensors were changed in place."""
    folder = save_tiny_model(directory)
    tensors = load_file(folder / "model.safetensors")
    damage(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_damaged_weights_are_explained(tmp_path: Path) -> None:
    truncated = save_tiny_model(tmp_path / "truncated")
    whole = (truncated / "model.safetensors").read_bytes()
    (truncated / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    norm = "model.layers.1.input_layernorm.weight"
    cases = {
        "cannot be loaded as a causal language model": truncated,
        f"lacks the weights of {norm}; they would be random": damaged(
            tmp_path / "lacking", lambda tensors: tensors.__delitem__(norm)
        ),
        f"{norm} holds values that are not finite": damaged(tmp_path / "nan", lambda tensors: tensors[norm].fill_(float("nan"))),
        r"logits are not finite in torch\.float32": damaged(
            tmp_path / "huge", lambda tensors: tensors["lm_head.weight"].fill_(3e38)
        ),
    }
    for message, path in cases.items():
        with pytest.raises(UserError, match=message):
            make_engine("actor", model(path))


def test_a_model_that_does_not_fit_is_refused_before_its_weights_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_read", lambda *_: pytest.fail("the weights were read"))
    parameters = sum(parameter.numel() for parameter in tiny_model().parameters())
    monkeypatch.setattr(loading, "free_memory", lambda _: 20 * parameters - 1)  # trainer, gradient, AdamW, sampler
    with pytest.raises(UserError, match=r"needs 0\.0 GiB for weights, gradients and optimiser.*model\.lora\.rank"):
        make_engine("actor", model(folder))
    monkeypatch.setattr(loading, "free_memory", lambda _: 20 * parameters)
    with pytest.raises(pytest.fail.Exception):
        make_engine("actor", model(folder))
    with pytest.raises(UserError, match="needs"):
        make_engine("actor", model(folder), keep_reference=True)


def test_models_that_fit_one_by_one_but_not_together_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = sum(parameter.numel() for parameter in tiny_model().parameters())
    whole, adapters = model(folder), model(folder, lora={"rank": 2})

    def free(size: int) -> None:
        monkeypatch.setattr(factory, "free_memory", lambda _: size)

    free(40 * parameters)
    check_memory_of({"actor": whole, "extractor": whole})
    with pytest.raises(UserError, match=r"need actor 0\.0 GiB and extractor 0\.0 GiB, and cpu has 0\.0 GiB free"):
        check_memory_of({"actor": whole, "extractor": whole}, references=["extractor"])
    free(39 * parameters)
    with pytest.raises(UserError, match="adapters"):
        check_memory_of({"actor": whole, "extractor": whole})
    need = loading.model_need(str(folder), adapters)
    assert need.frozen == 4 * parameters
    free(2 * need.held - need.frozen)
    check_memory_of({"actor": adapters, "extractor": adapters})
    free(2 * need.held - need.frozen - 1)
    with pytest.raises(UserError, match="one base"):
        check_memory_of({"actor": adapters, "extractor": adapters})


def test_attention_is_chosen_and_what_is_missing_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for attention in ("eager", "sdpa"):
        engine = make_engine("actor", model(folder, attention=attention))
        assert engine._trainer.decoder.config._attn_implementation == attention  # type: ignore[attr-defined]
        engine.close()
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    with pytest.raises(UserError, match=r"model\.attention flash_attention_2 cannot be used here .*; use sdpa or auto"):
        make_engine("actor", model(folder, attention="flash_attention_2"))


def test_rotary_frequencies_keep_their_precision_in_a_narrow_sampler(folder: Path) -> None:
    engine = make_engine("actor", model(folder, dtype="bfloat16"))
    buffers = dict(engine._sampler.decoder.model.named_buffers())  # type: ignore[attr-defined]
    assert buffers["model.rotary_emb.inv_freq"].dtype == torch.float32
    engine.close()
