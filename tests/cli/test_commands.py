"""Every command on a run that was really trained."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import Result
from helpers.runs import bank_tables, newest_checkpoint, records, timeless, tiny_arguments, tiny_config
from typer.testing import CliRunner

from complementary_rl.cli.main import app
from complementary_rl.report.summary import RunSummary
from complementary_rl.training.run import train

ROOMS = ("eval.split=train",)


def crl(*arguments: str, fails: int = 0) -> Result:
    result = CliRunner(env={"COLUMNS": "160"}).invoke(app, list(arguments))
    assert result.exit_code == fails, (result.output, result.exception)
    return result


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "run"
    train(tiny_config(directory, *ROOMS))
    return directory


@pytest.fixture
def entry(run: Path) -> tuple[str, str]:
    """Id and text of the first entry."""
    row = bank_tables(run / "bank.sqlite")["entries"][0]
    return str(row[0]), row[1]


def test_train_says_where_the_summary_is_and_shows_its_steps(tmp_path: Path) -> None:
    result = crl(*tiny_arguments(tmp_path / "run"))
    assert f"summary: {tmp_path / 'run' / 'summary.json'}" in result.stdout
    RunSummary.model_validate_json((tmp_path / "run" / "summary.json").read_text())
    quiet = crl(*tiny_arguments(tmp_path / "quiet"), "--quiet").stdout
    assert quiet.splitlines() == [f"summary: {tmp_path / 'quiet' / 'summary.json'}"]
    assert len(result.stdout.splitlines()) > 1


def test_bank_ls_lists_live_entries_and_counts(run: Path) -> None:
    output = crl("bank", "ls", str(run), "--limit", "1").stdout
    assert "text" in output and "won" in output
    everything = crl("bank", "ls", str(run), "--retired", "--limit", "1000").stdout
    for row in bank_tables(run / "bank.sqlite")["entries"]:
        assert row[1][:20] in everything


def test_bank_show_tells_one_entry(run: Path, entry: tuple[str, str]) -> None:
    output = crl("bank", "show", str(run), entry[0]).stdout
    assert entry[1] in output
    assert "written by  d/s0-" in output
    assert "no entry 99999; list them with" in crl("bank", "show", str(run), "99999", fails=2).stderr


def test_bank_search_finds_by_meaning_of_the_key(run: Path) -> None:
    key = bank_tables(run / "bank.sqlite")["keys"][0][1]
    output = crl("bank", "search", str(run), key, "--limit", "3").stdout
    assert "cosine" in output
    assert "1.00" in output


def test_bank_history_tells_how_an_entry_came_to_be(run: Path, entry: tuple[str, str]) -> None:
    lines = crl("bank", "history", str(run), entry[0]).stdout.splitlines()
    assert lines[0].split()[:5] == ["operation", "1", "step", "0", "add"]
    assert json.loads(lines[0].split(maxsplit=5)[5])["text"] == entry[1]


def test_a_bank_goes_out_and_comes_back_equal(run: Path, tmp_path: Path) -> None:
    export, other = tmp_path / "bank.jsonl", tmp_path / "other"
    assert f"to {export}" in crl("bank", "export", str(run), str(export)).stdout
    assert "imported" in crl("bank", "import", str(other), str(export)).stdout
    first, second = bank_tables(run / "bank.sqlite"), bank_tables(other / "bank.sqlite")
    first.pop("meta"), second.pop("meta")
    assert first == second
    assert crl("bank", "ls", str(other)).stdout.splitlines()[-1] == crl("bank", "ls", str(run)).stdout.splitlines()[-1]
    assert "exists already" in crl("bank", "import", str(other), str(export), fails=2).stderr


def test_an_imported_bank_can_be_trained_from(run: Path, tmp_path: Path) -> None:
    crl("bank", "export", str(run), str(tmp_path / "bank.jsonl"))
    options = ("run.method=offline", "run.steps=1", "run.warmup_steps=0", f"bank.source={tmp_path / 'bank.jsonl'}")
    crl(*tiny_arguments(tmp_path / "offline", *options), "--quiet")
    assert "guided" in records(tmp_path / "offline", "step")[0]["rollout"]


def test_eval_prints_a_line_per_arm_and_leaves_the_run_alone(run: Path) -> None:
    before = bank_tables(run / "bank.sqlite")
    lines = crl("eval", str(run), "--eval.episodes", "6", "--eval.shuffled_control=false").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["free", "guided"]
    assert all("success 0." in line or "success 1." in line for line in lines)
    assert all(line.endswith("n=6") for line in lines)
    assert bank_tables(run / "bank.sqlite") == before
    message = crl("eval", str(run), "--actor.optim.lr", "1", fails=2).stderr
    assert "takes settings of [eval] only" in message


def test_exported_models_load_in_transformers(run: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    output = crl("export", str(run), str(tmp_path / "models")).stdout
    for name in ("actor", "extractor"):
        folder = tmp_path / "models" / name
        assert str(folder) in output
        assert "library_name: transformers" in (folder / "README.md").read_text(encoding="utf-8")
        model = AutoModelForCausalLM.from_pretrained(folder)
        trained = load_file(newest_checkpoint(run) / name / "weights.safetensors")
        for key, tensor in model.state_dict().items():
            if key in trained:
                assert (tensor == trained[key]).all(), key
        tokenizer = AutoTokenizer.from_pretrained(folder)
        prompt = tokenizer.apply_chat_template([{"role": "user", "content": "at 1 1"}], add_generation_prompt=True, tokenize=False)
        ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)["input_ids"]
        assert model.generate(input_ids=ids, max_new_tokens=2, do_sample=False).shape[1] > ids.shape[1]


def test_models_are_not_exported_into_a_file(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert "cannot be written" in crl("export", str(run), str(tmp_path / "file" / "models"), fails=2).stderr


def test_report_writes_one_page(run: Path) -> None:
    output = crl("report", str(run)).stdout.strip()
    page = Path(output.removeprefix("report: "))
    assert "<html" in page.read_text()[:500]


def test_envs_ls_and_check() -> None:
    names = crl("envs", "ls").stdout.splitlines()
    assert "minihack/dark-rooms" in names
    assert names == sorted(names)
    good = crl("envs", "check", "minihack/dark-rooms", "--rooms", "2", "--heldout-rooms", "2", "--size=6", "--episodes", "2")
    assert good.stdout.startswith("minihack/dark-rooms: ok")
    bad = crl("envs", "check", "helpers.runs:Parity", "--fault", "bytes", fails=1)
    assert "problem(s)" in bad.stdout
    assert "has no option 'romms'" in crl("envs", "check", "minihack/dark-rooms", "--romms", "2", fails=2).stderr


# --- interrupts ---------------------------------------------------------------------------------------------------------------------


def interrupted(directory: Path, *overrides: str, quiet: bool) -> tuple[int, str, float]:
    """Start a long run, press Ctrl-C after its second step; returns the exit code, what it said, and the seconds it took to stop."""
    command = [sys.executable, "-m", "complementary_rl.cli.main", *tiny_arguments(directory, *overrides)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*command, *(["--quiet"] if quiet else [])], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    deadline = time.monotonic() + 90
    metrics = directory / "metrics.jsonl"
    while not metrics.exists() or metrics.read_bytes().count(b'"kind": "step"') < 2:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    output, _ = process.communicate(timeout=60)
    return process.returncode, output, time.monotonic() - start


@pytest.mark.parametrize(("schedule", "quiet"), [("lockstep", True), ("async", False)])
def test_ctrl_c_stops_with_a_message_and_the_run_resumes(schedule: str, quiet: bool, tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ("run.steps=12", f"run.schedule={schedule}")
    code, output, seconds = interrupted(run, *options, quiet=quiet)
    assert code == 130
    assert "interrupted; continue with --resume" in output
    assert "Traceback" not in output
    assert seconds < 20
    assert 2 <= len(records(run, "step")) < 12
    crl(*tiny_arguments(run, *options), "--resume", "--quiet")
    assert [record["step"] for record in records(run, "step")] == list(range(12))
    if schedule == "lockstep":
        crl(*tiny_arguments(tmp_path / "whole", *options), "--quiet")
        assert timeless(run) == timeless(tmp_path / "whole")


def test_play_shows_a_trained_actor_and_leaves_the_run_as_it_was(run: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    output = crl("envs", "play", "--run", str(run), "--episodes", "2").stdout
    assert output.count(", free: Find the exit") == output.count(", guided: Find the exit") == 2
    assert output.count("\n> ") >= 4
    assert output.count("solved after") == 4
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()} == before
