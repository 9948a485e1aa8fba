"""TensorBoard events, and the message when the package is missing."""

import sys
from pathlib import Path

import pytest
from helpers.runs import tiny_config

from complementary_rl.errors import UserError
from complementary_rl.report.tensorboard import TensorBoardWriter
from complementary_rl.training.run import train


def scalars(directory: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(directory))
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_numbers_become_scalars_under_their_path(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    with TensorBoardWriter(tmp_path) as writer:
        writer.record({"kind": "step", "step": 7, "rollout": {"free": {"success": 0.5}}, "actor": {"grpo/loss": 2}})
        writer.record({"kind": "extractor", "update": 3, "step": 7, "credit": 0.25})
        writer.record({"kind": "event", "step": 7, "message": "text is left out"})
    assert scalars(tmp_path) == {
        "step/rollout/free/success": [(7, 0.5)],
        "step/actor/grpo/loss": [(7, 2.0)],
        "extractor/credit": [(3, 0.25)],
    }


def test_missing_package_is_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match=r"complementary-rl\[tensorboard\]"):
        TensorBoardWriter(tmp_path)
    with pytest.raises(UserError, match=r"complementary-rl\[tensorboard\]"):
        train(tiny_config(tmp_path / "run", "log.tensorboard=true"))
    assert not (tmp_path / "run").exists()


def test_a_run_writes_its_curves(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    train(tiny_config(tmp_path / "run", "log.tensorboard=true", "run.method=baseline"))
    found = scalars(tmp_path / "run" / "tensorboard")
    assert [step for step, _ in found["step/rollout/free/success"]] == [0, 1, 2]
    assert [step for step, _ in found["eval/free/success/mean"]] == [3]
