"""`crl bank log`, `revert`, `ls --at-step` and the formats of `export`, on a bank that no run had to be trained for."""

import sys
from pathlib import Path

import pytest
from click.testing import Result
from helpers.banks import add, open_bank
from typer.testing import CliRunner

from complementary_rl.cli.main import app


def crl(*arguments: str, fails: int = 0) -> Result:
    result = CliRunner(env={"COLUMNS": "160"}).invoke(app, list(arguments))
    assert result.exit_code == fails, (result.output, result.exception)
    return result


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    with open_bank(tmp_path / "run" / "bank.sqlite") as bank:
        first, second = add(bank, "go north first"), add(bank, "then go south")
        bank.merge([first, second], "north, then south", step=3)
        bank.record_outcomes(4, [(3, True, "t")])
    return tmp_path / "run"


def test_log_shows_the_ids_that_revert_takes(run: Path) -> None:
    lines = [line.split(maxsplit=5) for line in crl("bank", "log", str(run)).stdout.splitlines()]
    assert [line[:5] for line in lines] == [
        ["operation", "1", "step", "0", "add"],
        ["operation", "2", "step", "0", "add"],
        ["operation", "3", "step", "3", "merge"],
    ]
    assert len(crl("bank", "log", str(run), "--limit", "1").stdout.splitlines()) == 1
    assert crl("bank", "history", str(run), "3").stdout == crl("bank", "log", str(run)).stdout


def test_revert_says_what_it_did_and_refuses_with_the_reason(run: Path) -> None:
    assert "built on since; revert first, in this order: 3 (merge)" in crl("bank", "revert", str(run), "1", fails=2).stderr
    (run / "checkpoints").mkdir()
    lines = crl("bank", "revert", str(run), "3").stdout.splitlines()
    assert lines[:3] == ["reverted operation 3 (merge) by operation 4", "live again: 1, 2", "retired: 3"]
    assert "--bank.source" in lines[3]
    assert "go north first" in crl("bank", "ls", str(run)).stdout
    assert "(reverted by 4)" in crl("bank", "log", str(run)).stdout
    assert "was reverted already" in crl("bank", "revert", str(run), "3", fails=2).stderr
    with open_bank(run / "bank.sqlite") as bank:
        assert bank.last_step == 4
        assert "being written by another process" in crl("bank", "revert", str(run), "4", fails=2).stderr


def test_ls_at_a_step_shows_the_bank_of_then(run: Path) -> None:
    then = crl("bank", "ls", str(run), "--at-step", "2").stdout
    assert "go north first" in then and "north, then south" not in then
    assert then.splitlines()[-1] == "size 2  at step 2"
    now = crl("bank", "ls", str(run), "--at-step", "4").stdout
    assert now.splitlines()[:-1] == crl("bank", "ls", str(run)).stdout.splitlines()[:-1]
    assert "the bank has steps 0 to 4" in crl("bank", "ls", str(run), "--at-step", "5", fails=2).stderr
    assert "leave --retired out" in crl("bank", "ls", str(run), "--at-step", "1", "--retired", fails=2).stderr


@pytest.mark.parametrize("arguments", [["out.parquet"], ["folder", "--format", "parquet"]])
def test_parquet_goes_out_and_comes_back(run: Path, tmp_path: Path, arguments: list[str]) -> None:
    pytest.importorskip("pyarrow", reason="needs the extra `parquet`")
    output = tmp_path / arguments[0]
    assert f"to {output}" in crl("bank", "export", str(run), str(output), *arguments[1:]).stdout
    assert output.is_dir()
    assert "imported" in crl("bank", "import", str(tmp_path / "copy"), str(output)).stdout
    assert crl("bank", "log", str(tmp_path / "copy")).stdout == crl("bank", "log", str(run)).stdout


def test_a_format_that_cannot_be_had_is_explained(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "choose jsonl or parquet" in crl("bank", "export", str(run), str(tmp_path / "out"), "--format", "csv", fails=2).stderr
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    message = crl("bank", "export", str(run), str(tmp_path / "out.parquet"), fails=2).stderr
    assert "pip install 'complementary-rl[parquet]'" in message
    assert "to" in crl("bank", "export", str(run), str(tmp_path / "out.parquet"), "--format", "jsonl").stdout
    assert (tmp_path / "out.parquet").is_file()
