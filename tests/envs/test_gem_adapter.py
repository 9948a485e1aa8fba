"""GEM's environments as suites, with real ones that need no data."""

import pytest

pytest.importorskip("gem", reason="needs the extra 'gem'")

from complementary_rl.envs.checker import check_env
from complementary_rl.envs.registry import make_suite
from complementary_rl.errors import UserError

OFFLINE = ["game:GuessTheNumber-v0-random", "game:Minesweeper-v0-easy", "game:TowerofHanoi-v0-easy", "game:Game2048-v0-easy"]


@pytest.mark.parametrize("id", OFFLINE)
def test_environments_keep_the_protocol(id: str) -> None:
    report = check_env(make_suite("gem", id=id), episodes=6)
    assert report.ok, str(report)


def test_a_game_is_won_by_halving() -> None:
    suite = make_suite("gem", id="game:GuessTheNumber-v0-easy", train_tasks=5)
    env = suite.make_env()
    for task in suite.tasks("train"):
        opening, _ = env.reset(task, 0)
        assert "between 1 and 10" in opening
        low, high, over = 1, 10, False
        while not over:
            guess = (low + high) // 2
            told, reward, over, _, info = env.step(rf"\boxed{{{guess}}}")
            low, high = (guess + 1, high) if "higher" in told else (low, guess - 1)
        assert (reward, info["success"]) == (1.0, True)


def test_the_milestones_of_a_game_won_add_up_to_a_success() -> None:
    suite = make_suite("gem", id="game:TowerofHanoi-v0-easy")
    env = suite.make_env()
    opening, _ = env.reset(suite.tasks("train")[0], 0)
    moves = ["A C", "A B", "C B", "A C", "B A", "B C", "A C"]
    assert "A: [3, 2, 1]" in opening
    told, *_ = env.step(r"\boxed{C A}")
    assert "A: [3, 2, 1]" in told
    for move in moves:
        told, _, over, truncated, info = env.step(rf"\boxed{{{move}}}")
    assert (over, truncated, info["success"]) == (True, False, True), told


def test_what_is_no_action_ends_gems_games_without_success() -> None:
    suite = make_suite("gem", id="game:GuessTheNumber-v0-easy")
    env = suite.make_env()
    env.reset(suite.tasks("train")[0], 0)
    _, reward, over, _, info = env.step("four")
    assert (over, info["success"]) == (True, False)
    assert reward < 0


def test_an_unknown_id_is_told_with_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'game:GuessTheNumber-v0-easy'"):
        make_suite("gem", id="game:GuesTheNumber-v0-easy")


def test_an_environment_that_wants_what_is_not_here_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(id: str) -> None:
        raise LookupError("no words")

    monkeypatch.setattr("gem.make", make)
    with pytest.raises(UserError, match="gem cannot make game:Wordle-v0-easy here: LookupError: no words"):
        make_suite("gem", id="game:Wordle-v0-easy")
