"""Live progress: what a run's records say, in a terminal and in plain lines, and following other processes."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.run_dirs import step_record
from rich.console import Console

from complementary_rl.report import progress as progress_module
from complementary_rl.report.progress import Progress, View, plain_line, render, watch_runs
from complementary_rl.report.state import RunState
from complementary_rl.report.tail import Tail, number, parse_record


def step(index: int, wall: float = 0.0, **rollout: Any) -> dict[str, Any]:
    return {"kind": "step", "step": index, "episodes": 64 * (index + 1), "wall": wall, "rollout": rollout}


def plain_console() -> Console:
    return Console(file=StringIO(), force_terminal=False, width=200)


def output(console: Console) -> list[str]:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


# --- state -----------------------------------------------------------------------------------------------------------------------


def test_time_left_is_at_the_pace_seen_in_this_session() -> None:
    state = RunState("run", total_steps=100)
    state.record(step(49, wall=1000.0))
    assert state.seconds_left() is None
    state.record(step(59, wall=1020.0))
    assert state.seconds_left() == pytest.approx(40 * 2.0)


def test_recent_success_is_the_mean_of_the_last_ten_steps() -> None:
    state = RunState("run", 100)
    for index in range(30):
        state.record(step(index, guided={"success": 0.0 if index < 20 else 0.5}, free={"success": 0.25}))
    assert state.recent("guided") == pytest.approx(0.5)
    assert state.recent("free") == pytest.approx(0.25)
    assert RunState("run", 1).recent("free") is None


def test_curve_shares_the_time_axis_of_the_whole_run() -> None:
    state = RunState("run", 8)
    for index, success in enumerate([0.0, 1.0, 0.5, 0.5]):
        state.record(step(index, free={"success": success}))
    assert state.curve("free", 4) == [0.5, 0.5, None, None]


def test_curve_of_a_short_run_has_no_gaps() -> None:
    state = RunState("run", 2)
    state.record(step(0, free={"success": 0.25}))
    assert state.curve("free", 6) == [0.25, 0.25, 0.25, None, None, None]


def test_phases() -> None:
    state = RunState("run", 2)
    assert state.phase == "starting"
    state.record(step(0))
    assert state.phase == "training"
    state.record(step(1))
    assert state.phase == "evaluating"
    state.record({"kind": "eval", "step": 2, "guided": {"success": {"mean": 0.75}}})
    assert (state.phase, state.evaluation) == ("done", {"guided": 0.75})


def test_useful_share_is_weighed_by_what_was_judged() -> None:
    state = RunState("run", 9)
    state.record({**step(0), "experience": {"judged_entries": 10.0, "useful_entries": 2.0, "bank_size": 5.0}})
    state.record({**step(1), "experience": {"judged_entries": 30.0, "useful_entries": 30.0, "bank_size": 8.0}})
    assert state.useful_share == pytest.approx(32 / 40)
    assert state.bank_size == 8


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"kind": "something else", "step": 3},
        {"kind": "step"},
        {"kind": "step", "step": "x", "rollout": [], "experience": None},
        {"kind": "step", "step": 0, "rollout": {"free": {"success": float("nan")}}},
        {"kind": "extractor"},
        {"kind": "eval", "free": 3},
    ],
)
def test_records_that_lack_things_are_survived(record: dict[str, Any]) -> None:
    state = RunState("run", 3)
    state.record(record)
    assert plain_line(state)
    assert render({"run": state})


# --- plain lines -----------------------------------------------------------------------------------------------------------------


def test_plain_lines_come_at_every_twentieth_of_the_run() -> None:
    console = plain_console()
    with View({"run": RunState("run", 100)}, console, Clock()) as view:
        for index in range(100):
            view.record("run", step(index, free={"success": 0.5}))
    lines = output(console)
    assert len(lines) == 20
    assert lines[0].startswith("run  step 5/100  free 50%")
    assert lines[-1].startswith("run  step 100/100")


def test_slow_runs_report_every_minute() -> None:
    console, clock = plain_console(), Clock()
    with View({"run": RunState("run", 1000)}, console, clock) as view:
        for index in range(4):
            clock.now += 40.0
            view.record("run", step(index))
    assert [line.split()[2] for line in output(console)] == ["2/1000", "4/1000"]


def test_the_last_line_has_the_evaluation() -> None:
    console = plain_console()
    with Progress(1, "run", console) as progress:
        progress.record({**step(0, wall=75.0, free={"success": 0.5}), "experience": {"bank_size": 12}})
        progress.record({"kind": "extractor", "update": 6})
        progress.record({"kind": "eval", "step": 1, "guided": {"success": {"mean": 0.8}}, "free": {"success": {"mean": 0.4}}})
    assert output(console)[-1] == (
        "run  step 1/1  evaluation: guided 80%  evaluation: free 40%  bank 12  extractor updates 7  trained in 1 min 15 s"
    )


def test_events_are_shown_as_they_are() -> None:
    console = plain_console()
    with Progress(5, "run", console) as progress:
        progress.record({"kind": "event", "step": 1, "message": "lost [red]one[/red]"})
        progress.event("disk is [bold]full")
    assert output(console) == ["! run: lost [red]one[/red]", "! disk is [bold]full"]


# --- terminal --------------------------------------------------------------------------------------------------------------------


def drawn(runs: dict[str, RunState], width: int = 80) -> str:
    console = Console(file=StringIO(), force_terminal=False, width=width)
    console.print(render(runs))
    return "\n".join(output(console))


def test_picture_shows_all_runs_on_one_scale() -> None:
    low, high = RunState("baseline", 32), RunState("complementary", 32)
    for index in range(16):
        low.record(step(index, wall=2.0 * index, free={"success": 0.0}))
        high.record({**step(index, wall=2.0 * index, guided={"success": 1.0}), "experience": {"bank_size": 1234}})
    text = drawn({"baseline": low, "complementary": high})
    assert "▁" * 16 in text
    assert "█" * 16 in text
    assert "█" * 17 not in text
    assert "1,234 entries" in text
    assert text.count("16/32  about 32 s left") == 2
    assert all(len(line) <= 80 for line in text.splitlines())


def test_a_terminal_gets_the_live_picture() -> None:
    console = Console(file=StringIO(), force_terminal=True, width=80)
    with Progress(2, "run", console) as progress:
        progress.record(step(0, free={"success": 0.5}))
        progress.record(step(1, free={"success": 0.5}))
    assert "2/2" in "".join(output(console))


# --- following files -------------------------------------------------------------------------------------------------------------


def test_tail_waits_for_whole_lines_and_passes_over_damage(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = Tail(path)
    assert tail.read() == []
    path.write_bytes(b'{"a": 1}\nnot json\n[1]\n{"b"')
    assert tail.read() == [{"a": 1}]
    with path.open("ab") as file:
        file.write(b": 2}\n")
    assert tail.read() == [{"b": 2}]
    assert tail.read() == []


def test_tail_starts_over_when_the_file_was_cut_back(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}\n')
    tail = Tail(path)
    assert len(tail.read()) == 2
    path.write_text('{"a": 3}\n')
    assert tail.read() == [{"a": 3}]
    assert tail.restarts == 1


def test_numbers_are_finite_or_none() -> None:
    record = {"a": {"b": 2, "nan": float("nan"), "text": "3", "flag": True}}
    assert number(record, "a", "b") == 2.0
    assert [number(record, "a", name) for name in ("nan", "text", "missing")] == [None, None, None]
    assert number(record, "a", "b", "c") is None
    assert parse_record("{broken") is None


class Script:
    """A process that ends with `code` when it was polled `polls` times; each poll writes the next records."""

    def __init__(self, path: Path, records: list[list[dict[str, Any]]], code: int = 0) -> None:
        self.path, self.records, self.code = path, records, code

    def poll(self) -> int | None:
        if not self.records:
            return self.code
        with self.path.open("a") as file:
            file.writelines(json.dumps(record) + "\n" for record in self.records.pop(0))
        return None


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "POLL_SECONDS", 0.0)


@pytest.mark.usefixtures("no_waiting")
def test_watching_shows_everything_that_was_written_before_the_end(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    runs = {name: tmp_path / name for name in ("baseline", "complementary")}
    for directory in runs.values():
        directory.mkdir()
    chunks = {name: [[step_record(s, 4, name != "baseline", random)] for s in range(4)] for name in runs}
    processes = {name: Script(runs[name] / "metrics.jsonl", chunks[name]) for name in runs}
    console = plain_console()
    watch_runs(runs, processes, total_steps=4, console=console)
    lines = output(console)
    assert sum("4/4" in line for line in lines) == 2
    assert sum(line.startswith("complementary") for line in lines) == 4


@pytest.mark.usefixtures("no_waiting")
def test_watching_stops_when_one_fails(tmp_path: Path) -> None:
    endless = Script(tmp_path / "metrics.jsonl", [[] for _ in range(10_000)])
    failed = Script(tmp_path / "other.jsonl", [], code=2)
    watch_runs({"a": tmp_path, "b": tmp_path}, {"a": endless, "b": failed}, total_steps=4, console=plain_console())
    assert len(endless.records) > 9_000
