"""TextArena's games as suites, with real games that need no data."""

import pytest

pytest.importorskip("textarena", reason="needs the extra 'textarena'")

from complementary_rl.envs.checker import check_env
from complementary_rl.envs.registry import make_suite
from complementary_rl.errors import UserError

OFFLINE = ["GuessTheNumber-v0", "Minesweeper-v0-small", "TowerOfHanoi-v0", "FrozenLake-v0-random", "Blackjack-v0", "Mastermind-v0"]


@pytest.mark.parametrize("id", OFFLINE)
def test_games_keep_the_protocol(id: str) -> None:
    report = check_env(make_suite("textarena", id=id), episodes=6)
    assert report.ok, str(report)


def test_a_game_is_won_by_halving() -> None:
    suite = make_suite("textarena", id="GuessTheNumber-v0", train_tasks=5)
    env = suite.make_env()
    for task in suite.tasks("train"):
        opening, _ = env.reset(task, 0)
        assert "between 1 and 20" in opening
        low, high, over = 1, 20, False
        while not over:
            guess = (low + high) // 2
            told, reward, over, truncated, info = env.step(str(guess))
            assert opening not in told
            assert f"[{guess}]" not in told
            low, high = (guess + 1, high) if "higher" in told else (low, guess - 1)
        assert (reward, truncated, info["success"]) == (1.0, False, True)
        assert "Congratulations" in told


def test_partial_credit_is_a_reward_and_no_success() -> None:
    suite = make_suite("textarena", id="GuessTheNumber-v0")
    env = suite.make_env()
    env.reset(suite.tasks("train")[0], 0)
    assert env.step("what?")[1:] == (0.0, False, False, {"success": False})
    for guess in ("1", "20", "1"):
        _, reward, over, _, info = env.step(guess)
    assert (over, info["success"]) == (False, False)
    _, reward, over, _, info = env.step("1")
    assert over
    assert 0 < reward < 1
    assert info["success"] is False


def test_a_task_is_a_board() -> None:
    def boards(**options: object) -> set[str]:
        suite = make_suite("textarena", id="FrozenLake-v0-random", **options)
        env = suite.make_env()
        return {env.reset(task, 0)[0] for split in ("train", "heldout") for task in suite.tasks(split)}

    assert boards(train_tasks=10, heldout_tasks=10) == boards(train_tasks=10, heldout_tasks=10)
    assert len(boards(train_tasks=10, heldout_tasks=10)) > 15
    assert boards(train_tasks=10, heldout_tasks=10, seed=1) != boards(train_tasks=10, heldout_tasks=10)


@pytest.mark.parametrize(
    ("id", "words"),
    [
        ("GuesTheNumber-v0", "did you mean 'GuessTheNumber-v0'"),
        ("TicTacToe-v0", "cannot be played here: The number of players has to be 2"),
        ("UsedCar-v0-balanced", "cannot be played here: Could not import"),
    ],
)
def test_ids_that_cannot_be_played(id: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        make_suite("textarena", id=id)
