"""`crl cluster plan`: what a reader sees, and the exit status a script sees."""

from typer.testing import CliRunner

from complementary_rl.cli.main import app


def plan(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["cluster", "plan", *arguments])
    return result.exit_code, result.output


def test_a_run_that_fits_is_told_so_process_by_process() -> None:
    status, output = plan("paper/one-gpu", "--gpus", "1")
    assert status == 0
    assert "fits: 1 GPUs" in output
    assert "nothing was loaded" in output


def test_a_run_that_does_not_fit_ends_with_what_to_change() -> None:
    status, output = plan("paper/one-gpu", "--gpus", "1", "--gpu-memory", "16")
    assert status == 1
    assert "does not fit: GPU 0 would hold" in output
    assert "max_context" in output


def test_overrides_are_planned() -> None:
    status, output = plan("paper/one-gpu", "--gpus", "1", "--actor.model.path", "no/such")
    assert status != 0
    assert "no/such" in output
