"""From configuration to engine: every way a model can be unusable has its own message."""

import asyncio
import json
from pathlib import Path

import pytest
from helpers.models import STOP_ID, save_tiny_model, tiny_model, tiny_tokenizer

from complementary_rl.config import ModelConfig
from complementary_rl.engines import make_engine
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
