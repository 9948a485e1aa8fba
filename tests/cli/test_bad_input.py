"""What users get wrong: exit code 2, one message that says what to do, no traceback."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from helpers.banks import open_bank
from helpers.models import save_tiny_model
from helpers.runs import tiny_arguments
from helpers.traces import write_traces
from typer.testing import CliRunner

from complementary_rl.cli.errors import overrides_from
from complementary_rl.cli.main import app
from complementary_rl.config_file import load_config
from complementary_rl.errors import UserError


def crl(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def refused(*arguments: str) -> str:
    """Run a command that must be refused; returns what it said."""
    result = crl(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.output
    return result.stderr


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["--actor.optm.lr", "1"], "actor.optm: unknown setting; did you mean 'actor.optim'?"),
        (["--actor.optim.lr", "fast"], "actor.optim.lr: "),
        (["--env.group-size=4"], "env.group-size: unknown setting; did you mean 'env.group_size'?"),
        (["--env.group_size=7", "--retrieval.entries_per_group=2"], "env.group_size is 7: it must be even"),
        (["--run.method", "complimentary"], "run.method: "),
        (["--run.steps"], "--run.steps needs a value"),
        (["run.steps=4"], "unexpected argument 'run.steps=4'; settings are given as --section.field value"),
        (["--run.method", "offline"], "bank.source: "),
        (["--run.seed.deep", "3"], "run.seed"),
        (["--actor.optim.lr", "inf"], "actor.optim.lr: Input should be a finite number (given: inf)"),
        (["--actor.optim.betas", "[0.9, nan]"], "actor.optim.betas.1: Input should be a finite number"),
        (["--env.step_timeout=inf"], "env.step_timeout: Input should be a finite number"),
        (["--env.options.x", "nan"], "env.options.x"),
        (["--env.options.x", "[1, {y = -inf}]"], "env.options.x"),
        (["--env.options.x", "1979-05-27"], "env.options.x"),
    ],
)
def test_a_setting_that_does_not_fit(settings: list[str], message: str) -> None:
    assert message in refused("train", "quickstart", "--dry-run", *settings)


def test_a_typo_in_a_file_names_the_nearest_setting(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[run]\nsteps = 3\n[retrieval]\nscoer = 'value'\n")
    assert "retrieval.scoer: unknown setting; did you mean 'retrieval.score'?" in refused("train", str(path))
    path.write_text("[run\n")
    assert "is not valid TOML" in refused("train", str(path))


def test_a_config_that_is_not_there() -> None:
    assert "shipped: " in refused("train", "quikstart")


def test_an_unknown_suite(tmp_path: Path) -> None:
    message = refused(*tiny_arguments(tmp_path / "run", "env.suite=minihack/dark-romms"))
    assert "did you mean 'minihack/dark-rooms'" in message
    assert not (tmp_path / "run").exists()
    assert "did you mean 'minihack/dark-rooms'" in refused("envs", "check", "minihack/dark-romms")


@pytest.mark.parametrize(("pattern", "message"), [("tokenizer*", "no tokenizer"), ("chat_template*", "chat template")])
def test_a_model_folder_that_lacks_something(pattern: str, message: str, tmp_path: Path) -> None:
    model = save_tiny_model(tmp_path / "model")
    for path in model.glob(pattern):
        path.unlink()
    assert message in refused(*tiny_arguments(tmp_path / "run", f"actor.model.path={model}"))


def test_a_directory_that_is_no_run(tmp_path: Path) -> None:
    for command in (["eval"], ["export"]):
        output = [str(tmp_path / "out")] if command == ["export"] else []
        assert "is not a run directory" in refused(*command, str(tmp_path), *output)
    for bank in (["ls"], ["show", "1"], ["history", "1"], ["search", "exit"], ["export", "out.jsonl"]):
        assert "holds no bank.sqlite" in refused("bank", bank[0], str(tmp_path), *bank[1:])


BANK_COMMANDS = (["ls"], ["revert", "1"], ["export", "out.jsonl"], ["import", "exported.jsonl"])


@pytest.mark.parametrize("command", BANK_COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "holds no bank yet"), (b"not a database at all, but long enough to look at" * 40, "no bank"), (None, "is a folder")],
    ids=["empty", "no database", "folder"],
)
def test_a_bank_that_is_none(content: bytes | None, message: str, command: list[str], tmp_path: Path) -> None:
    bank = tmp_path / "run" / "bank.sqlite"
    bank.parent.mkdir()
    if content is None:
        bank.mkdir()
    else:
        bank.write_bytes(content)
    (tmp_path / "exported.jsonl").write_text('{"format": "complementary-rl-bank", "schema": 1}\n{"rows": 0}\n')
    arguments = [argument if argument == "1" else str(tmp_path / argument) for argument in command[1:]]
    said = refused("bank", command[0], str(bank.parent), *arguments)
    assert str(bank) in said
    assert (message if command[0] != "import" else "exists already") in said
    assert content is None or bank.read_bytes() == content
    assert list(bank.parent.iterdir()) == [bank]
    assert not (tmp_path / "out.jsonl").exists()


def test_numbers_that_no_bank_has(tmp_path: Path) -> None:
    for command in (["show", str(10**30)], ["history", str(10**30)], ["revert", str(10**30)], ["log", "--limit", str(10**30)]):
        result = crl("bank", command[0], str(tmp_path), *command[1:])
        assert result.exit_code == 2
        assert "less than or equal" in result.stderr


def test_an_export_that_goes_nowhere(tmp_path: Path) -> None:
    with open_bank(tmp_path / "bank.sqlite"):
        pass
    for name in ("out.jsonl", "out.parquet"):
        message = refused("bank", "export", str(tmp_path), str(tmp_path / "missing" / name))
        assert f"{tmp_path / 'missing'} is no folder that is there; make it first" in message


def test_two_exports_in_one_file(tmp_path: Path) -> None:
    with open_bank(tmp_path / "bank.sqlite") as bank:
        bank.export_jsonl(tmp_path / "one.jsonl")
    lines = (tmp_path / "one.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "two.jsonl").write_text("".join(lines * 2))
    message = refused("bank", "import", str(tmp_path / "run"), str(tmp_path / "two.jsonl"))
    assert f"two.jsonl, line {len(lines) + 1}: another export begins after the end of the export" in message
    assert not list((tmp_path / "run").iterdir()), "no lock either"


BROKEN_SUITE = """
from complementary_rl.envs.protocol import Suite
from complementary_rl.types import Task

class Broken(Suite):
    name = "broken"
    def __init__(self, at="never"):
        self.at = at
        if at == "init":
            raise KeyError("levels")
    def tasks(self, split):
        if self.at in ("tasks", split):
            raise ConnectionError("no hub")
        return [Task(f"{split}/{n}", "broken", f"Do {n}.", n, split) for n in range(2)]
    def make_env(self):
        raise FileNotFoundError("levels.json")
"""


@pytest.mark.parametrize(
    ("at", "message"),
    [
        ("init", "making it raised KeyError: 'levels' ({suite}, line 10); mend the suite"),
        ("tasks", "tasks('train') raised ConnectionError: no hub ({suite}, line 13)"),
        ("heldout", "tasks('heldout') raised ConnectionError: no hub"),
    ],
)
def test_a_suite_that_raises(at: str, message: str, tmp_path: Path) -> None:
    suite = tmp_path / "broken.py"
    suite.write_text(BROKEN_SUITE)
    options = [f"env.suite={suite}:Broken", f"env.options={{at = '{at}'}}", "eval.split=heldout"]
    assert message.format(suite=suite) in refused(*tiny_arguments(tmp_path / "run", *options))
    assert not (tmp_path / "run").exists()


def test_a_suite_that_makes_no_environment(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN_SUITE)
    settings = [f"env.suite={tmp_path / 'broken.py'}:Broken", "env.options={}", "env.fault_budget=4"]
    result = crl(*tiny_arguments(tmp_path / "run", *settings), "--quiet")
    assert result.exit_code == 3
    assert "the last: raised: make_env: FileNotFoundError: levels.json. Check the suite with `crl envs check`" in result.stderr


def test_the_options_of_another_suite(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN_SUITE)
    message = refused("train", "quickstart", "--env.suite", f"{tmp_path / 'broken.py'}:Broken", "--run.dir", str(tmp_path / "run"))
    assert "has no option 'rooms'" in message
    assert "--env.options '{}' leaves out all" in message


def test_a_directory_that_is_taken_names_the_setting_that_chose_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for run in (tmp_path / "mine", tmp_path / "runs" / "taken"):
        run.mkdir(parents=True)
        (run / "run.json").write_text("{}")
    assert "or choose another --run.dir" in refused("train", "quickstart", "--run.dir", "mine")
    assert "or choose another --run.name" in refused("train", "quickstart", "--run.name", "taken")


def test_an_interrupt_names_no_option_that_the_command_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("complementary_rl.cli.transcripts.look_through", interrupt)
    traces = write_traces(tmp_path / "traces.jsonl", [])
    result = crl("bank", "import", str(tmp_path / "run"), str(traces))
    assert (result.exit_code, result.stderr) == (130, "interrupted; what was distilled is kept, call it again to go on\n")
    monkeypatch.setattr("complementary_rl.report.html.write_report", interrupt)
    result = crl("report", str(tmp_path))
    assert (result.exit_code, result.stderr) == (130, "interrupted\n")


def test_an_export_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text("{}\n")
    message = refused("bank", "import", str(tmp_path / "run"), str(tmp_path / "notes.jsonl"))
    assert "holds neither an exported bank nor a transcript that can be read (1 lines refused; line 1: no messages" in message
    assert not (tmp_path / "run").exists()
    assert "cannot be read" in refused("bank", "import", str(tmp_path / "run"), str(tmp_path / "missing.jsonl"))


def test_quickstart_does_not_write_over_anything(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert "is not empty" in refused("quickstart", "--dir", str(tmp_path))


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    place = str(tmp_path / "file" / "place")
    assert "cannot be written" in refused("quickstart", "--dir", place)
    (tmp_path / "export.jsonl").write_text('{"format": "complementary-rl-bank", "schema": 1}\n')
    (tmp_path / "traces.jsonl").write_text('[{"role": "user", "content": "go"}, {"role": "assistant", "content": "gone"}]\n')
    for source in ("export.jsonl", "traces.jsonl"):
        assert "cannot be written" in refused("bank", "import", place, str(tmp_path / source))
    assert "cannot be written" in refused(*tiny_arguments(Path(place)))


def test_quickstart_needs_a_step(tmp_path: Path) -> None:
    assert crl("quickstart", "--dir", str(tmp_path / "quick"), "--steps", "0").exit_code == 2
    assert not (tmp_path / "quick").exists()


def test_dry_run_prints_a_config_that_loads_again(tmp_path: Path) -> None:
    result = crl("train", "quickstart", "--dry-run", "--run.seed=7", "--actor.optim.lr", "3e-4", "--eval.tasks", "['a', 'b']")
    assert result.exit_code == 0
    path = tmp_path / "resolved.toml"
    path.write_text(result.stdout)
    config = load_config(path)
    assert (config.run.seed, config.actor.optim.lr, config.eval.tasks) == (7, 3e-4, ("a", "b"))
    again = crl("train", str(path), "--dry-run")
    assert again.stdout == result.stdout
    assert not (tmp_path / "runs").exists()


def test_configs_are_listed_with_what_they_are_for() -> None:
    lines = crl("configs").stdout.splitlines()
    assert lines
    quickstart = next(line for line in lines if line.startswith("quickstart "))
    assert len(quickstart.split(maxsplit=1)[1]) > 10
    for line in lines:
        assert crl("train", line.split()[0], "--dry-run").exit_code == 0


def test_version() -> None:
    import complementary_rl

    assert crl("--version").stdout.strip() == complementary_rl.__version__


def test_overrides_come_in_both_forms() -> None:
    assert overrides_from(["--a.b", "1", "--c.d=2=3", "--e", "-1"]) == ["a.b=1", "c.d=2=3", "e=-1"]
    with pytest.raises(UserError, match="unexpected argument"):
        overrides_from(["a.b"])
