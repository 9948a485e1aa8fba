"""Runs with adapters and a constrained extractor, and models whose context is too small for the task."""

from pathlib import Path

import pytest
from helpers.runs import records, tiny_config

from complementary_rl.errors import UserError
from complementary_rl.training.run import export_run, train
from complementary_rl.training.session import open_session


@pytest.mark.timeout(600)  # importing PEFT alone takes long on a busy machine
def test_adapters_and_constrained_answers_through_a_whole_run(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    pytest.importorskip("llguidance")
    config = tiny_config(
        tmp_path / "run",
        "actor.model.lora.rank=4",
        "extractor.model.lora.rank=4",
        "extractor.constrained=true",
        "extractor.sampling.max_new_tokens=40",
        "run.steps=2",
        "extractor.kl_coefficient=0.1",
    )
    train(config)
    steps = records(tmp_path / "run", "step")
    text = str(steps)
    assert "well_formed_answers" in text
    for output in export_run(config, tmp_path / "exported"):
        assert (output / "adapter_model.safetensors").exists()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("actor.model.max_context=16", r"the first prompt of .* has \d+ tokens .* the actor's context holds 16"),
        ("extractor.model.max_context=32", r"the extractor cannot read episodes of .*: its prompt has \d+ tokens"),
    ],
)
def test_a_context_too_small_for_the_task_is_said_before_training(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        open_session(tiny_config(tmp_path / "run", override), tmp_path / "run")
    assert not (tmp_path / "run").exists()
