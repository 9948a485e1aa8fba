"""One episode by anyone: scripts as policies, and tasks with rules and limits of their own."""

from collections.abc import Generator

import pytest
from helpers.suites import CountEnv, CountSuite, task

from complementary_rl.envs.playing import Outcome, expert_player, play_episode, random_player, scripted
from complementary_rl.envs.protocol import Policy
from complementary_rl.types import Task


def script(opening: str) -> Generator[str, str, None]:
    seen = yield f"saw {opening}"
    yield f"saw {seen}"


def test_a_script_sees_every_observation_and_gives_up_at_its_end() -> None:
    policy = scripted(script)
    assert [policy("a"), policy("b"), policy("c"), policy("d")] == ["saw a", "saw b", None, None]
    assert scripted(script)("e") == "saw e", "a new episode begins anew"


def test_an_expert_that_gives_up_leaves_the_episode() -> None:
    class Short(CountSuite):
        def expert(self, task: Task, seed: int) -> Policy:
            return scripted(script)

    suite = Short()
    outcome = play_episode(suite, CountEnv(), task(0), 0, expert_player(suite, task(0), 0))
    assert (outcome.actions, outcome.stop) == (2, "left")


def test_rules_and_limit_are_those_of_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ruled(CountSuite):
        def max_turns_for(self, task: Task) -> int:
            return 1

        def instructions_for(self, task: Task) -> str:
            return "rule"

    suite, said = Ruled(), set()
    for seed in range(30):
        action = random_player(suite, task(0), seed)("", ())
        said.add(action)
    assert said == {"rule"}
    outcome = play_episode(suite, CountEnv(), task(0), 0, lambda observation, offered: "wait")
    assert outcome == Outcome(False, 0.0, 1, "turns")
