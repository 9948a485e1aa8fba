"""A lockstep run that was killed and resumed is the unbroken run, bit for bit."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.runs import bank_tables, newest_checkpoint, records, timeless, tiny_arguments, tiny_config

from complementary_rl.errors import BankError, CheckpointError, UserError
from complementary_rl.training.run import train

LONG = (
    "run.steps=6",
    "eval.interval=3",
    "checkpoint.interval=2",
    "actor.updates_per_batch=2",
    "extractor.batch_size=2",
    "tool.enabled=true",
)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "unbroken"
    train(tiny_config(directory, *LONG))
    return directory


def start(directory: Path, *overrides: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "complementary_rl.cli.main", *tiny_arguments(directory, *overrides), "--quiet"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "OMP_NUM_THREADS": "1"})


def kill_when(process: "subprocess.Popen[bytes]", directory: Path, condition: Callable[[Path], bool]) -> None:
    deadline = time.monotonic() + 90
    while not condition(directory):
        assert process.poll() is None, (process.stdout.read() if process.stdout else b"").decode()
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()


def wrote(steps: int) -> Callable[[Path], bool]:
    def condition(directory: Path) -> bool:
        path = directory / "metrics.jsonl"
        return path.exists() and path.read_bytes().count(b'"kind": "step"') >= steps

    return condition


def checkpointing(directory: Path) -> bool:
    """In the middle of writing the second checkpoint."""
    root = directory / "checkpoints"
    return (root / "step_2").exists() and (root / ".step_4.partial").exists()


@pytest.mark.parametrize("moment", [wrote(1), wrote(4), checkpointing], ids=["before a checkpoint", "between", "while writing one"])
def test_a_killed_run_resumes_to_the_same_weights_bank_and_metrics(
    moment: Callable[[Path], bool], unbroken: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    kill_when(start(broken, *LONG), broken, moment)
    assert not (broken / "summary.json").exists()
    train(tiny_config(broken, *LONG), resume=True)
    assert timeless(broken) == timeless(unbroken)
    assert bank_tables(broken / "bank.sqlite") == bank_tables(unbroken / "bank.sqlite")
    for model in ("actor", "extractor"):
        whole, mended = newest_checkpoint(unbroken) / model, newest_checkpoint(broken) / model
        for name in ("weights.safetensors", "optimizer.safetensors", "engine.json"):
            assert (mended / name).read_bytes() == (whole / name).read_bytes(), f"{model}: {name}"
    states = [json.loads((newest_checkpoint(path) / "state.json").read_text()) for path in (unbroken, broken)]
    assert states[0]["manager"] == states[1]["manager"]
    episodes = [sorted(path.name for path in (run / "episodes").iterdir()) for run in (unbroken, broken)]
    assert episodes[0] == episodes[1]


def test_the_unbroken_run_had_something_to_lose(unbroken: Path) -> None:
    assert records(unbroken, "extractor")
    tables = bank_tables(unbroken / "bank.sqlite")
    assert len(tables["entries"]) >= 2
    assert tables["outcomes"]
    assert len(records(unbroken, "eval")) == 2


def test_resuming_a_finished_run_changes_nothing(unbroken: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(unbroken, tmp_path / "copy")
    train(tiny_config(copy, *LONG), resume=True)
    assert timeless(copy) == timeless(unbroken)
    assert bank_tables(copy / "bank.sqlite") == bank_tables(unbroken / "bank.sqlite")


def test_resuming_with_another_configuration_is_refused(unbroken: Path) -> None:
    before = (unbroken / "metrics.jsonl").read_bytes()
    with pytest.raises(CheckpointError, match=r"another configuration.*config\.toml"):
        train(tiny_config(unbroken, *LONG, "actor.optim.lr=0.5"), resume=True)
    assert (unbroken / "metrics.jsonl").read_bytes() == before


def test_a_fresh_run_does_not_touch_a_directory_that_holds_one(unbroken: Path) -> None:
    before = bank_tables(unbroken / "bank.sqlite")
    with pytest.raises(UserError, match="already holds a run; continue it with --resume"):
        train(tiny_config(unbroken, *LONG))
    assert bank_tables(unbroken / "bank.sqlite") == before


def test_there_must_be_something_to_resume(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run to resume"):
        train(tiny_config(tmp_path / "run"), resume=True)
    assert not (tmp_path / "run").exists()


def test_a_bank_of_another_run_is_refused(unbroken: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    train(tiny_config(other, "run.seed=5", "run.steps=1"))
    copy = shutil.copytree(unbroken, tmp_path / "copy")
    shutil.copy(other / "bank.sqlite", newest_checkpoint(copy) / "bank.sqlite")
    with pytest.raises(BankError, match="belongs to run"):
        train(tiny_config(copy, *LONG), resume=True)


def test_a_checkpoint_that_lost_a_file_names_the_way_out(unbroken: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(unbroken, tmp_path / "copy")
    (newest_checkpoint(copy) / "state.json").write_text("{")
    with pytest.raises(CheckpointError, match="delete it to continue from an earlier one"):
        train(tiny_config(copy, *LONG), resume=True)
    shutil.rmtree(newest_checkpoint(copy))
    train(tiny_config(copy, *LONG), resume=True)
    assert timeless(copy) == timeless(unbroken)
