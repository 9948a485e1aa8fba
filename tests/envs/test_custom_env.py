"""The example people copy from: complete, short, and correct."""

from pathlib import Path

from complementary_rl.envs.checker import check_env
from complementary_rl.envs.registry import make_suite

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_env.py"


def test_it_is_at_most_forty_lines() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 40


def test_it_passes_the_check() -> None:
    report = check_env(make_suite(f"{EXAMPLE}:GuessNumber"), episodes=6)
    assert report.ok, str(report)


def test_bisection_solves_it_within_its_turns() -> None:
    suite = make_suite(f"{EXAMPLE}:GuessNumber")
    env = suite.make_env()
    for seed, task in enumerate(suite.tasks("train")):
        env.reset(task, seed)
        low, high = 1, 100
        for _ in range(suite.max_turns):
            guess = (low + high) // 2
            observation, reward, terminated, _, info = env.step(str(guess))
            if terminated:
                break
            low, high = (guess + 1, high) if observation == "higher" else (low, guess - 1)
        assert (terminated, reward, info["success"]) == (True, 1.0, True)


def test_what_is_not_a_number_is_answered_not_raised() -> None:
    suite = make_suite(f"{EXAMPLE}:GuessNumber")
    env = suite.make_env()
    env.reset(suite.tasks("train")[0], 0)
    for text in ("", "forty", "9" * 5000, "²", "-3"):
        assert env.step(text)[0] == "not a number from 1 to 100"


def test_the_documentation_shows_this_very_file() -> None:
    assert f"```python\n{EXAMPLE.read_text()}```" in (EXAMPLE.parents[1] / "docs" / "environments.md").read_text()
