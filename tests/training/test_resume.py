"""A lockstep run that was killed and resumed is the unbroken run, bit for bit."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from helpers.runs import bank_tables, newest_checkpoint, records, timeless, tiny_arguments, tiny_config

from complementary_rl.cli.errors import INTERRUPTED
from complementary_rl.errors import BankError, CheckpointError, UserError
from complementary_rl.training.run import train

LONG = (
    "run.steps=6",
    "eval.interval=3",
    "checkpoint.interval=2",
    "actor.updates_per_batch=2",
    "extractor.batch_size=2",
    "tool.enabled=true",
    "self_distillation.enabled=true",
    "merge.enabled=true",
    "merge.mode=clusters",
    "merge.similarity=0.5",
    "merge.redundancy=0.1",
)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "unbroken"
    train(tiny_config(directory, *LONG))
    return directory


DIE_WHILE_WRITING = """
import json, os, signal, sys
from complementary_rl.cli.main import app

def dump(state, file, write=json.dump):
    write(state, file)
    if state["progress"]["step"] == 4:
        os.kill(os.getpid(), signal.SIGKILL)

json.dump = dump
app(sys.argv[1:])
"""
"""Training that is killed with its second checkpoint complete but not yet in its place."""


def start(program: list[str], directory: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, *program, *tiny_arguments(directory, *LONG), "--quiet"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "OMP_NUM_THREADS": "1"})


def kill_after(steps: int, directory: Path) -> None:
    """Train until so many steps are recorded, then kill."""
    process = start(["-m", "complementary_rl.cli.main"], directory)
    wait_for_steps(process, steps, directory)
    process.kill()
    assert process.wait() == -signal.SIGKILL


def wait_for_steps(process: "subprocess.Popen[bytes]", steps: int, directory: Path) -> None:
    metrics = directory / "metrics.jsonl"
    deadline = time.monotonic() + 90
    while not metrics.exists() or metrics.read_bytes().count(b'"kind": "step"') < steps:
        assert process.poll() is None, (process.stdout.read() if process.stdout else b"").decode()
        assert time.monotonic() < deadline
        time.sleep(0.001)


def kill_while_writing(directory: Path) -> None:
    process = start(["-c", DIE_WHILE_WRITING], directory)
    assert process.wait(90) == -signal.SIGKILL
    assert [path.name for path in (directory / "checkpoints").iterdir() if path.name.startswith(".")] == [".step_4.partial"]


def stop_after(steps: int, directory: Path) -> None:
    """As `kill_after`, by the SIGTERM of a scheduler: there is a checkpoint of where the run stands."""
    process = start(["-m", "complementary_rl.cli.main"], directory)
    wait_for_steps(process, steps, directory)
    process.terminate()
    assert process.wait(60) == INTERRUPTED
    assert b"--resume" in (process.stdout.read() if process.stdout else b"")
    assert newest_checkpoint(directory).name == f"step_{len(records(directory, 'step'))}"


MOMENTS: dict[str, Callable[[Path], None]] = {
    "before a checkpoint": partial(kill_after, 1),
    "between two": partial(kill_after, 4),
    "while writing one": kill_while_writing,
    "asked to leave": partial(stop_after, 1),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_run_resumes_to_the_same_weights_bank_and_metrics(moment: str, unbroken: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    MOMENTS[moment](broken)
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
    episodes = [{path.name: path.read_text() for path in (run / "episodes").iterdir()} for run in (unbroken, broken)]
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
