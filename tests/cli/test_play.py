"""`crl envs play`: scripted hands, chance and experts, harmless output, clean ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from complementary_rl.cli.main import app

GUESS = f"{Path(__file__).parents[2] / 'examples' / 'custom_env.py'}:GuessNumber"


def play(*arguments: str, typed: str = "", fails: int = 0) -> Result:
    result = CliRunner(env={"COLUMNS": "100"}).invoke(app, ["envs", "play", *arguments], input=typed)
    assert result.exit_code == fails, (result.output, result.exception)
    return result


def test_a_game_by_hand() -> None:
    lines = play(GUESS, "--task", "guess/3", typed="0\n101\n").stdout.splitlines()
    assert lines[0] == "guess/3, seed 0: Guess a number."
    assert "whole number I think of" in lines[1]
    assert lines[2:] == [
        "What is your first guess?",
        "> 0",
        "higher",
        "> 101",
        "lower",
        "not solved after 2 actions (left), reward 0",
    ]


def test_an_episode_to_its_end_and_the_next() -> None:
    output = play("sokoban", "--episodes", "2", "--suite.seed", "3", "--max-turns", "20", typed="left\n" * 40).stdout
    assert output.count("not solved after 20 actions (truncated), reward 0") == 2
    assert output.splitlines()[-1] == "0 of 2 episodes solved"
    assert "sokoban/train-1, seed 1" in output


def test_the_seed_of_the_suite_and_of_the_episode_are_apart() -> None:
    def opening(*options: str) -> str:
        return play("sokoban", *options).stdout.split("right.\n", 1)[1]

    assert opening() == opening("--seed", "4") != opening("--suite.seed", "4")


def test_a_question_mark_shows_rules_and_actions() -> None:
    output = play("sokoban", typed="?\n").stdout
    assert output.count("You push boxes") == 2
    assert "Some actions: up; down; left; right" in output


def test_an_expert_and_chance() -> None:
    assert "solved after" in play("sokoban", "--policy", "expert", "--split", "heldout").stdout.splitlines()[-1]
    lines = play("sokoban", "--policy", "expert", "--episodes", "4").stdout.splitlines()
    assert lines[-1] == "4 of 4 episodes solved"
    assert len(lines) == 9
    chance = play("sokoban", "--policy", "random", "--episodes", "3").stdout
    assert chance == play("sokoban", "--policy", "random", "--episodes", "3").stdout
    assert "of 3 episodes solved" in chance


@pytest.mark.parametrize("suite", [("alfworld", "--train-tasks", "6"), ("webshop", "--items", "200", "--train-tasks", "6")])
def test_the_players_of_the_text_worlds_are_experts(suite: tuple[str, ...]) -> None:
    last = play(*suite, "--policy", "expert", "--episodes", "6").stdout.splitlines()[-1]
    assert int(last.partition(" of 6 episodes solved")[0]) >= 3


def test_a_mixture_shows_the_rules_of_each_part() -> None:
    parts = f'{{ sokoban = {{ options = {{ levels = 2, heldout_levels = 1 }} }}, guess = {{ suite = "{GUESS}" }} }}'
    output = play("mixture", f"--suites={parts}", "--episodes", "2", typed="1\n" * 7 + "up\n" * 30).stdout
    assert "whole number I think of" in output
    assert "You push boxes" in output


def test_chance_without_a_list_of_actions_takes_words() -> None:
    assert "> " in play(GUESS, "--policy", "random").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "name a suite"),
        (["sokoban", "--policy", "magic"], "hand, random, expert"),
        (["sokoban", "--task", "sokoban/train-9999"], "such as 'sokoban/train-0'"),
        (["sokoban", "--split", "test"], "train or heldout"),
        ([GUESS, "--policy", "expert"], "knows no expert"),
        (["sokoban", "--run", "runs/x"], "leave the name"),
        (["sokobann"], "did you mean 'sokoban'"),
        (["--run", "no/such/run"], "not a run directory"),
    ],
)
def test_bad_input(arguments: list[str], words: str) -> None:
    assert words in play(*arguments, fails=2).stderr


def test_no_text_can_command_the_terminal() -> None:
    output = play(GUESS, typed="\x1b]0;title\x07[bold]\n").stdout
    assert "> \\x1b]0;title\\x07[bold]" in output
    assert "\x1b" not in output


def test_an_interrupt_ends_it_cleanly() -> None:
    program = [sys.executable, "-c", "from complementary_rl.cli.main import app; app()", "envs", "play", "sokoban"]
    process = subprocess.Popen(
        program,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdin and process.stdout and process.stderr
    for line in process.stdout:
        if "boxes on targets" in line:
            break
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    assert output.splitlines()[-1] == "left"
