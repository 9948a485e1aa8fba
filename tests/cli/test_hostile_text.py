"""What models, environments and files say is printed so that no terminal obeys it and no list is flooded."""

import io
import unicodedata
from pathlib import Path

import pytest
from click.testing import Result
from helpers.banks import add, open_bank
from helpers.traces import write_traces
from rich.console import Console
from typer.testing import CliRunner

from complementary_rl.cli.main import app
from complementary_rl.report.progress import Progress

HOSTILE = "go \x1b[2J\x9b31m\rnorth\x00 \u202ehtuos\u2066"
ESCAPED = r"go \x1b[2J\x9b31m\rnorth\x00 \u202ehtuos\u2066"


def crl(*arguments: str, fails: int = 0) -> Result:
    result = CliRunner(env={"COLUMNS": "400"}).invoke(app, list(arguments), color=True)
    assert result.exit_code == fails, (result.output, result.exception)
    return result


def obeyed(output: str) -> list[str]:
    """The characters that are more than text, but for line ends and the colours of our own messages."""
    plain = output.replace("\x1b[31m", "").replace("\x1b[33m", "").replace("\x1b[0m", "")
    return [c for c in plain if c != "\n" and unicodedata.category(c) in ("Cc", "Cf")]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    with open_bank(tmp_path / "run" / "bank.sqlite", max_chars=2_000_000) as bank:
        add(bank, HOSTILE, key=HOSTILE, scope=HOSTILE)
        add(bank, "x" * 1_000_000 + " end")
    return tmp_path / "run"


@pytest.mark.parametrize(
    "command", [["ls"], ["ls", "--retired"], ["show", "1"], ["search", "go"], ["log"], ["history", "1"]], ids=" ".join
)
def test_nothing_of_a_bank_is_obeyed(command: list[str], run: Path) -> None:
    output = crl("bank", command[0], str(run), *command[1:]).stdout
    assert not obeyed(output)
    assert r"\u202e" in output
    if command[0] in ("ls", "show", "search"):
        assert ESCAPED in output


def test_lists_are_short_and_show_is_whole(run: Path) -> None:
    for command in ("ls", "log", "search"):
        output = crl("bank", command, str(run), *(["x"] if command == "search" else [])).stdout
        assert len(output) < 20_000
        assert "more characters" in output
    assert "x" * 1_000_000 + " end" in crl("bank", "show", str(run), "2").stdout


def test_a_text_of_several_lines_cannot_pass_for_the_fields_below_it(tmp_path: Path) -> None:
    with open_bank(tmp_path / "bank.sqlite") as bank:
        add(bank, "go north\nretired     step 3")
    lines = crl("bank", "show", str(tmp_path), "1").stdout.splitlines()
    assert [line for line in lines if line.startswith("retired")] == ["retired     live"]


def test_messages_of_errors_are_only_read(tmp_path: Path) -> None:
    (tmp_path / "suite.py").write_text(f"raise OSError({HOSTILE!r})")
    assert ESCAPED in (error := crl("envs", "check", f"{tmp_path / 'suite.py'}:Suite", fails=2).stderr)
    assert not obeyed(error)
    traces = write_traces(tmp_path / "traces.jsonl", [[{"role": HOSTILE, "content": ""}]])
    assert not obeyed(crl("bank", "import", str(tmp_path / "b"), str(traces), fails=2).output)


def test_what_an_environment_said_takes_one_line_of_the_progress() -> None:
    file = io.StringIO()
    with Progress(3, "run", Console(file=file, width=80)) as progress:
        progress.record({"kind": "event", "message": f"episode lost: {HOSTILE}\n! run: all is well"})
    assert file.getvalue() == rf"! run: episode lost: {ESCAPED}\n! run: all is well" + "\n"
