"""Environments that fail, a disk that is full, an extractor that writes garbage: counted and survived, or stopped with a reason."""

import math
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers.models import save_tiny_model
from helpers.runs import bank_tables, newest_checkpoint, parity_config, records, timeless

from complementary_rl.errors import ConfigError, InfrastructureError
from complementary_rl.training import schedule
from complementary_rl.training.metrics import MetricsLog, write_episodes
from complementary_rl.training.run import train

FAULTS = {
    "raised": "raised",
    "hung": "(hung|not_tried)",
    "nan": "bad_reward",
    "huge": "bad_reward",
    "bytes": "bad_observation",
    "silent": "bad_success",
}


def faulty(fault: str, every: int) -> tuple[str, ...]:
    return (f"env.options={{fault = '{fault}', every = {every}}}", "env.step_timeout=0.15")


@pytest.mark.parametrize("fault", FAULTS)
def test_an_environment_that_fails_for_ever_stops_the_run_with_the_reason(fault: str, tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match=rf"env\.fault_budget = 10; the last: {FAULTS[fault]}.*crl envs check"):
        train(parity_config(tmp_path / "run", *faulty(fault, 1), "env.fault_budget=10", "run.steps=50"))
    assert len(records(tmp_path / "run", "event")) == 16, "two steps of eight episodes"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_few_faults_are_counted_and_survived(fault: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    summary = train(parity_config(run, *faulty(fault, 9), "env.fault_budget=64"))
    events = [record["message"] for record in records(run, "event") if "lost" in record["message"]]
    assert events
    assert all(re.search(f"environment {FAULTS[fault]}:", event) for event in events)
    assert summary.methods["complementary"].episodes == 24 - len(events)
    assert all(math.isfinite(record["actor"].get("grad_norm", 0.0)) for record in records(run, "step"))


def test_a_limit_that_steps_may_break_by_rights_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helpers.runs.Parity.step_seconds", 40.0)
    with pytest.raises(ConfigError, match=r"env\.step_timeout is 30, but a step of \S+ may take 40 s"):
        train(parity_config(tmp_path / "run"))


@pytest.mark.parametrize("schedule_name", ["lockstep", "async"])
def test_a_run_that_lost_every_episode_is_no_trained_run(schedule_name: str, tmp_path: Path) -> None:
    options = ("env.fault_budget=1000", "run.steps=2", f"run.schedule={schedule_name}")
    with pytest.raises(InfrastructureError, match=r"nothing was trained: all 16 episodes .*metrics\.jsonl.*crl envs check"):
        train(parity_config(tmp_path / "run", *faulty("silent", 1), *options))
    assert not (tmp_path / "run" / "summary.json").exists()


def test_an_evaluation_stays_paired_when_episodes_are_lost(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(parity_config(run, *faulty("raised", 9), "eval.episodes=16"))
    [evaluation] = records(run, "eval")
    assert evaluation["faults"] > 0
    assert evaluation["free"]["success"]["n"] == evaluation["guided"]["success"]["n"] < 16


def test_an_extractor_that_writes_garbage_for_ever_is_counted_and_survived(tmp_path: Path) -> None:
    run = tmp_path / "run"
    garbage = save_tiny_model(tmp_path / "garbage")
    options = (
        "run.steps=4",
        "distill.per_group=2",
        "merge.interval=1",
        "extractor.batch_size=2",
        "extractor.sampling.max_new_tokens=16",
    )
    train(parity_config(run, f"extractor.model.path={garbage}", *options))
    steps = records(run, "step")
    assert sum(record["experience"].get("unparsable", 0) for record in steps) == 4 * 4
    assert bank_tables(run / "bank.sqlite")["entries"] == []
    assert all(set(record["rollout"]) == {"free"} for record in steps)
    updates = records(run, "extractor")
    assert updates and all(update["credit"] == -1.0 for update in updates)


def test_an_actor_whose_context_is_too_small_ends_its_episodes(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(parity_config(run, "actor.model.max_context=22"))
    played = records(run, "step")[0]["rollout"]["free"]
    assert played["actions"] == 1.0  # a game is two
    assert played["overlong"] == played["n"] * (1 - played["success"])
    assert (run / "summary.json").exists()


@pytest.mark.parametrize("after", [0, 1])
def test_an_extractor_loop_that_dies_takes_the_async_run_with_it(
    after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def update(*_: Any, **__: Any) -> None:
        calls.append(1)
        if len(calls) > after:
            raise InfrastructureError("the machine is gone")

    calls: list[int] = []
    monkeypatch.setattr(schedule, "extractor_update", update)
    with pytest.raises(InfrastructureError, match="the machine is gone"):
        train(parity_config(tmp_path / "run", "run.schedule=async", "run.steps=200", "checkpoint.interval=0"))
    assert not (tmp_path / "run" / "summary.json").exists()


# --- a full disk --------------------------------------------------------------------------------------------------------------------


class FileLimit:
    """No file may grow beyond `size` bytes, from the moment a record says that `after` steps are done: a disk that fills up."""

    def __init__(self, size: int, after: int) -> None:
        self.size = size
        self.after = after

    def __call__(self, record: dict[str, Any]) -> None:
        if record["kind"] == "step" and record["step"] + 1 == self.after:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@contextmanager
def limits_lifted() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    ("method", "size", "after", "what"),
    [
        ("baseline", 300, 3, "cannot write"),
        ("complementary", 4096, 3, r"bank\.sqlite.*free the disk"),
        ("baseline", 500_000, 4, "checkpoint of step 4.*earlier checkpoints are intact"),
    ],
    ids=["metrics", "bank", "checkpoint"],
)
def test_a_full_disk_stops_the_run_and_resuming_makes_it_whole(
    method: str, size: int, after: int, what: str, tmp_path: Path
) -> None:
    options = (f"run.method={method}", "run.steps=5", "checkpoint.interval=2")
    whole, run = tmp_path / "whole", tmp_path / "run"
    train(parity_config(whole, *options))
    with limits_lifted(), pytest.raises(InfrastructureError, match=what):
        train(parity_config(run, *options), on_record=FileLimit(size, after))
    assert newest_checkpoint(run).name == "step_2"
    assert not list((run / "checkpoints").glob(".*"))
    train(parity_config(run, *options), resume=True)
    assert timeless(run) == timeless(whole)
    if method == "complementary":
        assert bank_tables(run / "bank.sqlite") == bank_tables(whole / "bank.sqlite")


def test_a_full_device_is_reported_once() -> None:
    log = MetricsLog(Path("/dev/full"))
    with pytest.raises(InfrastructureError, match=r"No space left on device; free space and continue with --resume"):
        log.append({"kind": "step"})
    log.close()


def test_episodes_that_cannot_be_written_are_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "episodes").write_text("in the way")
    with pytest.raises(InfrastructureError, match=r"cannot write step_1\.jsonl"):
        write_episodes(tmp_path / "episodes" / "step_1.jsonl", [])
