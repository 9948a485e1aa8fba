"""Gymnasium's environments as suites and suites as Gymnasium's environments, with real ones of both."""

from typing import Any

import pytest

pytest.importorskip("gymnasium", reason="needs the extra 'gymnasium'")

import gymnasium
from gymnasium.utils.env_checker import check_env as gymnasium_check
from helpers.suites import CountEnv, CountSuite

from complementary_rl.envs.adapters.gymnasium import AsGymnasium, FromGymnasium
from complementary_rl.envs.checker import check_env
from complementary_rl.envs.sokoban.suite import Sokoban
from complementary_rl.errors import UserError

ACTIONS = ("left", "down", "right", "up")


class Echo(gymnasium.Env[str, str]):
    """Say the word that was shown. Ends with the right word or after four."""

    observation_space = gymnasium.spaces.Text(20)
    action_space = gymnasium.spaces.Text(20)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.word, self.tries = f"word{self.np_random.integers(1000)}", 0
        return self.word, {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.tries += 1
        right = action == self.word
        return "yes" if right else "no", float(right), right, self.tries == 4 and not right, {}


def echo(**options: Any) -> FromGymnasium:
    return FromGymnasium(Echo, "Say the word you were shown.", "Say it.", **options)


def lake(**options: Any) -> FromGymnasium:
    return FromGymnasium(
        "FrozenLake-v1",
        "Cross the lake.",
        "Say left, down, right or up.",
        tell=lambda state: f"cell {state}",
        parse=lambda text: ACTIONS.index(text) if text in ACTIONS else None,
        **options,
    )


@pytest.mark.parametrize("suite", [echo(), echo(fresh=True), lake(), lake(max_turns=5)], ids=["echo", "fresh", "lake", "short"])
def test_suites_from_gymnasium_keep_the_protocol(suite: FromGymnasium) -> None:
    report = check_env(suite, episodes=5)
    assert report.ok, str(report)
    assert report.notes == []


def test_an_episode_from_gymnasium() -> None:
    suite = echo()
    assert (suite.name, suite.tasks("train")[0].scope) == ("Echo", "Echo")
    env = suite.make_env()
    word, _ = env.reset(suite.tasks("train")[0], 0)
    assert env.step("nonsense") == ("no", 0.0, False, False, {"success": False})
    assert env.step(word) == ("yes", 1.0, True, False, {"success": True})


def test_a_task_is_a_seed_and_fresh_counts_the_episode_in() -> None:
    def words(suite: FromGymnasium) -> set[str]:
        env = suite.make_env()
        return {env.reset(suite.tasks("train")[0], seed)[0] for seed in range(6)}

    assert len(words(echo())) == 1
    assert len(words(echo(fresh=True))) == 6
    assert words(echo()) != words(echo(seed=1))
    seeds = [task.seed for split in ("train", "heldout") for task in echo().tasks(split)]  # type: ignore[arg-type]
    assert len(set(seeds)) == 320


def test_what_is_no_action_costs_a_turn_and_what_was_seen_is_told_again() -> None:
    env = (suite := lake(max_turns=2)).make_env()
    opening, _ = env.reset(suite.tasks("train")[0], 0)
    assert env.step("swim") == (f"That is no action here.\n{opening}", 0.0, False, False, {"success": False})
    assert env.step("swim")[2:4] == (False, True)


def test_success_as_the_environment_says_it() -> None:
    class Told(Echo):
        def step(self, action: str) -> Any:
            return (*super().step(action)[:4], {"is_success": action == "magic"})

    suite = FromGymnasium(Told, "d")
    env = suite.make_env()
    word, _ = env.reset(suite.tasks("train")[0], 0)
    assert env.step(word)[4]["success"] is False
    env.reset(suite.tasks("train")[0], 0)
    assert env.step("magic")[4]["success"] is True


def test_a_truncated_episode_is_no_success_however_it_was_rewarded() -> None:
    class Generous(Echo):
        def step(self, action: str) -> Any:
            observation, _, *rest = super().step(action)
            return (observation, 1.0, *rest)

    suite = FromGymnasium(Generous, "d", max_turns=2)
    env = suite.make_env()
    env.reset(suite.tasks("train")[0], 0)
    assert [env.step("x")[1:] for _ in range(2)][-1] == (1.0, False, True, {"success": False})


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_suite_passes_gymnasiums_own_check() -> None:
    gymnasium_check(AsGymnasium(Sokoban(levels=3)), skip_render_check=True)


def test_a_suite_as_gymnasium_solves_with_its_expert() -> None:
    suite = Sokoban(levels=4)
    env = AsGymnasium(suite, "heldout")
    observation, info = env.reset(seed=1)
    task = next(task for task in suite.tasks("heldout") if task.id == info["task"])
    assert info["description"] == task.description
    assert info["instructions"] == suite.instructions
    expert = suite.expert(task, 0)
    over = False
    while not over:
        assert env.observation_space.contains(observation)
        observation, reward, over, truncated, info = env.step(expert(observation))
    assert (reward, truncated, info["success"]) == (1.0, False, True)
    env.close()


def test_the_seed_draws_the_task_and_options_name_it() -> None:
    env = AsGymnasium(Sokoban(levels=30))
    drawn = [env.reset(seed=seed)[1]["task"] for seed in range(10)]
    assert drawn == [env.reset(seed=seed)[1]["task"] for seed in range(10)]
    assert len(set(drawn)) > 5
    assert env.reset(seed=0, options={"task": "sokoban/train-7"})[1]["task"] == "sokoban/train-7"
    with pytest.raises(UserError, match="such as 'sokoban/train-0'"):
        env.reset(options={"task": "sokoban/heldout-0"})


def test_there_and_back_again() -> None:
    suite = FromGymnasium(lambda: AsGymnasium(Sokoban(levels=5)), "Push the boxes.", name="again")
    report = check_env(suite)
    assert report.ok, str(report)


def test_the_other_way_too_an_episode_that_runs_out_of_turns_is_told_as_no_success() -> None:
    class Endless(CountSuite):
        max_turns = 2

    env = AsGymnasium(Endless(lambda: CountEnv(lambda self, action, result: ("on", 0.0, False, False, {}))))
    env.reset(seed=0)
    assert [env.step("go")[2:] for _ in range(2)] == [(False, False, {"success": False}), (False, True, {"success": False})]
