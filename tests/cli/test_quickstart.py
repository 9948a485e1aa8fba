"""`crl quickstart`, cut short: two processes, one summary, one report; and what happens when one of them fails or is stopped."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers.runs import tiny_config
from typer.testing import CliRunner

from complementary_rl.cli import quickstart
from complementary_rl.cli.main import app
from complementary_rl.config_file import dump_config
from complementary_rl.report.summary import RunSummary


def test_both_methods_run_and_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, config = tmp_path / "quick", tmp_path / "tiny.toml"
    config.write_text(dump_config(tiny_config(directory)))
    monkeypatch.setattr(quickstart, "CONFIG", str(config))
    result = CliRunner().invoke(app, ["quickstart", "--dir", str(directory), "--steps", "2", "--seed", "3"])
    assert result.exit_code == 0, result.output
    summary = RunSummary.model_validate_json((directory / "summary.json").read_text())
    assert set(summary.methods) == {"baseline", "complementary"}
    assert summary.methods["baseline"].episodes == summary.methods["complementary"].episodes == 16
    assert {method.provenance.seed for method in summary.methods.values()} == {3}
    assert (directory / "report.html").exists()
    assert f"report:  {directory / 'report.html'}" in result.stdout


def test_a_run_that_fails_is_reported_at_once_with_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(method: str, run: Path, steps: int | None, seed: int) -> "subprocess.Popen[bytes]":
        run.mkdir(parents=True)
        program = "import time; time.sleep(60)" if method == "baseline" else "raise SystemExit('the cable is loose')"
        with (run.parent / f"{method}.log").open("wb") as log:
            processes.append(subprocess.Popen([sys.executable, "-c", program], stdout=log, stderr=log))
        return processes[-1]

    processes: list[subprocess.Popen[bytes]] = []
    monkeypatch.setattr(quickstart, "_start", start)
    begun = time.monotonic()
    result = CliRunner().invoke(app, ["quickstart", "--dir", str(tmp_path / "quick")])
    assert time.monotonic() - begun < 30
    assert result.exit_code == 3
    assert "the complementary run stopped (exit 1): the cable is loose" in result.stderr
    assert all(process.wait(10) != 0 for process in processes), "the other run is stopped too"


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    directory = tmp_path / "quick"
    command = [sys.executable, "-m", "complementary_rl.cli.main", "quickstart", "--dir", str(directory), "--steps", "500"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 90
    metrics = [directory / method / "metrics.jsonl" for method in quickstart.METHODS]
    while not all(path.exists() and path.stat().st_size for path in metrics):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the command and to the runs it started
    _, message = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"crl train {directory / 'complementary' / 'config.toml'} --resume" in message
    assert "Traceback" not in message
