"""What the adapters share, without the packages that they adapt."""

import random
import sys
import threading
from typing import Any

import numpy as np
import pytest

from complementary_rl.envs.adapters.global_random import OwnRandom
from complementary_rl.envs.adapters.ids import check_id
from complementary_rl.envs.adapters.seeded import SeededSuite
from complementary_rl.envs.checker import check_env
from complementary_rl.envs.registry import make_suite, suite_names
from complementary_rl.errors import UserError

ADAPTERS = {"gem": "gem", "gymnasium": "gymnasium", "openenv": "openenv", "textarena": "textarena", "verifiers": "verifiers.v1"}


class Dice:
    """Draws from the global generators, as some packages do. Ends with the fourth roll; the reward of each is a quarter."""

    def __init__(self) -> None:
        self._random = OwnRandom()

    def reset(self, *, seed: int) -> tuple[str, dict[str, Any]]:
        with self._random:
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002
        self.rolls = 0
        return "roll", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.rolls += 1
        with self._random:
            told = f"{random.random()} {np.random.random()}"  # noqa: NPY002
        return told, 0.25, self.rolls == 4, False, {}

    def close(self) -> None: ...


def dice(**options: Any) -> SeededSuite:
    settings: dict[str, Any] = {"train_tasks": 4, "heldout_tasks": 2, "max_turns": 9, "fresh": False, "seed": 0}
    return SeededSuite("dice", "Roll.", Dice, **settings | options)


@pytest.mark.parametrize(("name", "package"), ADAPTERS.items())
def test_without_its_package_a_suite_says_what_to_install(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert name in suite_names()
    monkeypatch.delitem(sys.modules, f"complementary_rl.envs.adapters.{name}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=rf"pip install 'complementary-rl\[{name}\]'"):
        make_suite(name)


def test_environments_that_draw_from_the_global_generators_do_not_draw_each_others_numbers() -> None:
    report = check_env(dice(), episodes=8)
    assert report.ok, str(report)


def test_the_global_generators_are_afterwards_what_they_were() -> None:
    env = dice().make_env()
    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    env.reset(dice().tasks("train")[0], 0)
    env.step("roll")
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002


def test_who_waits_too_long_for_the_global_generators_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("complementary_rl.envs.adapters.global_random._PATIENCE_SECONDS", 0.05)
    raised: list[BaseException] = []

    def other() -> None:
        try:
            with OwnRandom():
                pass
        except TimeoutError as error:
            raised.append(error)

    with OwnRandom():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(5)
    assert "global random generators" in str(raised[0])
    with OwnRandom():
        pass


@pytest.mark.parametrize(("solved_at", "success"), [(None, True), (1.0, True), (1.01, False)])
def test_an_end_is_a_success_by_the_sum_of_rewards(solved_at: float | None, success: bool) -> None:
    suite = dice(solved_at=solved_at)
    env = suite.make_env()
    env.reset(suite.tasks("train")[0], 0)
    steps = [env.step("roll") for _ in range(4)]
    assert [step[4]["success"] for step in steps] == [False, False, False, success]
    assert steps[-1][2] is True


@pytest.mark.parametrize(("option", "value"), [("train_tasks", 0), ("heldout_tasks", -1), ("max_turns", 0)])
def test_numbers_out_of_range(option: str, value: int) -> None:
    with pytest.raises(UserError, match=f"dice: {option} is {value}"):
        dice(**{option: value})


def test_an_unknown_id_is_told_with_the_nearest() -> None:
    check_id("acme", "Chess-v0", ["Chess-v0"])
    with pytest.raises(UserError, match="acme has no environment 'Ches-v0': did you mean 'Chess-v0'"):
        check_id("acme", "Ches-v0", ["Chess-v0", "Go-v0"])
    with pytest.raises(UserError, match="it has 2, such as Chess-v0, Go-v0"):
        check_id("acme", "qqqq", ["Go-v0", "Chess-v0"])
