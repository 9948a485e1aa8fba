"""Several suites in one: each task keeps its own rules, limits, environments and judge."""

import time
from pathlib import Path
from typing import Any

import pytest
from helpers.suites import CountEnv, CountSuite, hang, task

from complementary_rl.config_file import load_config
from complementary_rl.configs import find_config
from complementary_rl.envs import mixture as module
from complementary_rl.envs.checker import check_env
from complementary_rl.envs.mixture import Mixture
from complementary_rl.envs.playing import expert_player, play_episode
from complementary_rl.envs.pool import EnvPool
from complementary_rl.envs.protocol import Suite
from complementary_rl.envs.registry import make_suite
from complementary_rl.errors import EnvironmentFault, UserError
from complementary_rl.training.evaluation import check_evaluation
from complementary_rl.types import Task

COUNT, PARITY = {"suite": "helpers.suites:CountSuite"}, {"suite": "helpers.runs:Parity"}
EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_env.py"


@pytest.fixture
def mixed() -> Mixture:
    suite = make_suite("mixture", suites={"counting": {**COUNT, "weight": 3}, "accounting": PARITY})
    assert isinstance(suite, Mixture)
    return suite


def test_parts_hold_the_tasks_of_their_suites_in_an_order_that_the_file_does_not_decide(mixed: Mixture) -> None:
    parts = [(part.name, part.weight, [t.id for t in part.tasks]) for part in mixed.parts("train")]
    assert parts == [("accounting", 1.0, ["parity/0", "parity/1"]), ("counting", 3.0, ["count/0", "count/1"])]
    assert [t.id for t in mixed.tasks("heldout")] == ["parity/2", "count/2", "parity/3", "count/3"], "by turns"
    assert {t.id: mixed.part_of(t) for t in mixed.tasks("train")} == {
        "parity/0": "accounting",
        "count/0": "counting",
        "parity/1": "accounting",
        "count/1": "counting",
    }


def test_rules_limits_and_judges_are_those_of_the_task(mixed: Mixture, monkeypatch: pytest.MonkeyPatch) -> None:
    said, counted, *_ = mixed.tasks("train")
    assert (mixed.instructions_for(said), mixed.instructions_for(counted)) == ("Say an odd word.", "Say go.")
    assert (mixed.max_turns_for(said), mixed.max_turns_for(counted), mixed.max_turns) == (2, 5, 5)
    assert mixed.step_seconds == max(mixed.suite_of(task).step_seconds for task in (said, counted)) == 0
    monkeypatch.setattr(mixed.suite_of(counted), "judge_entry", lambda task, text: text == "say go")
    assert (mixed.judge_entry(said, "say go"), mixed.judge_entry(counted, "say go")) == (None, True)
    with pytest.raises(UserError, match=r"no part has a task 'elsewhere/1'"):
        mixed.instructions_for(task(1, id="elsewhere/1"))


def test_tasks_that_name_no_scope_are_filed_under_their_part(mixed: Mixture) -> None:
    assert [t.scope for t in mixed.tasks("train")] == ["parity/0", "counting", "parity/1", "counting"]


def test_an_environment_plays_every_part_and_makes_what_it_needs(mixed: Mixture) -> None:
    said, counted, *_ = mixed.tasks("train")
    counting: Any = mixed.suite_of(counted)
    env = mixed.make_env()
    assert env.reset(said, 3)[0] == "at 4 1"
    assert env.step("odd")[2:] == (True, False, {"success": True})
    assert counting.made == []
    assert env.reset(counted, 3)[0] == "level 0, start 3"
    assert env.step("go")[0] == "heard 1"
    env.reset(said, 0)
    env.reset(counted, 3)
    assert len(counting.made) == 1
    env.close()
    assert counting.made[0].closed


def test_closing_reaches_every_environment(mixed: Mixture, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError("stuck")

    said, counted, *_ = mixed.tasks("train")
    env = mixed.make_env()
    for one in (counted, said):
        env.reset(one, 0)
    counting: Any = mixed.suite_of(counted)
    env._environments["accounting"].close = refuse  # type: ignore[method-assign]
    with pytest.raises(OSError, match="stuck"):
        env.close()
    assert counting.made[0].closed


@pytest.mark.parametrize(
    ("suites", "words"),
    [
        ({}, "env.options.suites must name the suites to mix"),
        (["minihack/dark-rooms"], "env.options.suites must name the suites to mix"),
        ({"a/b": 2}, 'env.options.suites."a/b" must be a table with any of weight, options, suite'),
        ({"a": {"wieght": 2}}, "env.options.suites.a.wieght: unknown setting; did you mean 'env.options.suites.a.weight'?"),
        ({"a": {"zzz": 2}}, "env.options.suites.a.zzz: unknown setting; valid names here: weight, options, suite"),
        ({"a": {"weight": 0}}, "env.options.suites.a.weight must be a number above 0, not 0"),
        ({"a": {"weight": True}}, "env.options.suites.a.weight must be a number above 0"),
        ({"a": {"weight": float("inf")}}, "env.options.suites.a.weight must be a number above 0"),
        ({"a": {"weight": "2"}}, "env.options.suites.a.weight must be a number above 0, not '2'"),
        ({"a": {"options": 3}}, "env.options.suites.a.options must be a table"),
        ({"minihack/dark-room": {}}, "env.options.suites.\"minihack/dark-room\": unknown suite 'minihack/dark-room': did you mean"),
        ({"a": {**PARITY, "options": {"falt": ""}}}, "env.options.suites.a: suite 'helpers.runs:Parity' has no option 'falt'"),
        ({"a": COUNT, "b": COUNT}, "the parts 'a' and 'b' both have the task 'count/0'"),
        ({"a": {"suite": "mixture", "options": {"suites": {"b": COUNT, "c": PARITY}}}}, "has several parts itself"),
    ],
)
def test_mixtures_that_cannot_be_made(suites: Any, words: str) -> None:
    with pytest.raises(UserError) as caught:
        make_suite("mixture", suites=suites)
    assert words in str(caught.value)


def test_a_misspelt_option_of_the_mixture_itself() -> None:
    with pytest.raises(UserError, match="did you mean 'suites'"):
        make_suite("mixture", suits={})
    with pytest.raises(UserError, match=r"'suites'; give it in env\.options"):
        make_suite("mixture")


def test_it_keeps_the_protocol() -> None:
    rooms = {"options": {"rooms": 2, "heldout_rooms": 2, "size": 6, "max_turns": 4}}
    suite = make_suite("mixture", suites={"minihack/dark-rooms": rooms, "guess": {"suite": f"{EXAMPLE}:GuessNumber"}})
    report = check_env(suite, episodes=4)
    assert report.ok, str(report)
    assert not report.notes
    assert report.turns == 2 * 7 + 2 * 4, "both parts are played, each to its own limit"


def test_the_check_finds_parts_and_rules_that_do_not_hold_together() -> None:
    class Elsewhere(CountSuite):
        def part_of(self, task: Task) -> str:
            return "elsewhere"

        def max_turns_for(self, task: Task) -> int:
            return 0

        def instructions_for(self, task: Task) -> Any:
            return None

    problems = "\n".join(check_env(Elsewhere()).problems)
    for words in (
        "part_of('count/0') is 'elsewhere'",
        "max_turns_for('count/0') must be",
        "instructions_for('count/0') must be text",
    ):
        assert words in problems


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("mixture-rooms", {"large": 16, "small": 16}),
        ("mixture-small", {"frozen-lake": 16, "minihack/dark-rooms": 16, "sokoban": 16}),
        ("mixture-3", {"alfworld": 120, "minihack/dark-rooms": 16, "webshop": 500}),
        (
            "mixture-6",
            {
                "alfworld": 120,
                "frozen-lake": 32,
                "minihack/dark-rooms": 16,
                "minihack/keyroom-dark-s5": 64,
                "sokoban": 64,
                "webshop": 500,
            },
        ),
    ],
)
def test_the_shipped_mixtures_are_such(name: str, parts: dict[str, int]) -> None:
    config = load_config(find_config(name))
    played = make_suite(config.env.suite, **config.env.options).parts(config.eval.split)
    assert {part.name: len(part.tasks) for part in played} == parts
    check_evaluation(played, config.eval)


def test_experts_and_needs_are_those_of_the_parts() -> None:
    rooms = {"options": {"rooms": 2, "heldout_rooms": 2}}
    suite = make_suite("mixture", suites={"minihack/dark-rooms": rooms, "count": COUNT})
    assert suite.needs == "minihack (NetHack GPL)"
    counted, room, *_ = suite.tasks("train")
    assert suite.expert(counted, 0) is None
    assert play_episode(suite, suite.make_env(), room, 0, expert_player(suite, room, 0)).success


# --- many at once -------------------------------------------------------------------------------------------------------------------


def test_environments_are_reused_within_their_part(mixed: Mixture) -> None:
    said, counted, *_ = mixed.tasks("train")
    counting: Any = mixed.suite_of(counted)
    pool = EnvPool(mixed, timeout=5.0, workers=2)
    for first, second in ((said, counted), (counted, said), (said, counted)):
        pool.reset([("a", first, 0), ("b", second, 0)])
        pool.release(["a", "b"])
    pool.close()
    assert len(counting.made) == 1
    assert counting.made[0].resets == 3


def test_a_part_that_hangs_costs_the_others_one_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck(CountEnv):
        def reset(self, task: Task, seed: int) -> Any:
            hang()

    def make(name: str, **options: Any) -> Suite:
        return CountSuite(Stuck) if name == "stuck" else make_suite(name, **options)

    monkeypatch.setattr(module, "make_suite", make)
    suite = Mixture({"stuck": {}, "fine": PARITY})
    good, bad, *_ = suite.tasks("train")
    pool = EnvPool(suite, timeout=0.3, workers=2)
    start = time.monotonic()
    outcomes = pool.reset([*((f"bad{i}", bad, i) for i in range(20)), *((f"good{i}", good, i) for i in range(9))])
    assert time.monotonic() - start < 1.5, "and not ten of them"
    assert all(isinstance(outcome, EnvironmentFault) for outcome in outcomes[:20])
    assert all(isinstance(outcome, tuple) for outcome in outcomes[20:])
    pool.close()
