"""check_env: a good suite passes, each kind of broken one is told what is wrong."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from helpers.suites import CountEnv, CountSuite, hang, task

from complementary_rl.envs.checker import Report, check_env
from complementary_rl.errors import UserError
from complementary_rl.types import Split, Task


def problem(report: Report) -> str:
    assert len(report.problems) == 1, report.problems
    assert not report.ok
    assert report.problems[0] in str(report)
    return report.problems[0]


def with_step(hook: Any) -> CountSuite:
    return CountSuite(lambda: CountEnv(hook))


def test_a_good_suite_passes_and_is_described() -> None:
    report = check_env(CountSuite())
    assert report.ok, report.problems
    assert (report.tasks, report.episodes, report.turns, report.successes) == ({"train": 2, "heldout": 2}, 4, 12, 4)
    assert "count: ok" in str(report)
    assert "level 0" in str(report)


def test_every_environment_made_is_closed() -> None:
    suite = CountSuite()
    check_env(suite)
    assert all(env.closed for env in suite.made)


def test_raising() -> None:
    def hook(env: CountEnv, action: str, result: Any) -> Any:
        return result if env.count < 2 else {}[action]

    text = problem(check_env(with_step(hook)))
    assert "raised" in text
    assert "KeyError" in text
    assert "count/" in text


def test_hanging() -> None:
    report = check_env(with_step(lambda env, action, result: hang() or result), timeout=0.2)
    assert "hung" in problem(report)
    assert "0.2 s" in problem(report)


def test_observation_that_is_not_text() -> None:
    assert "must be text, not dict" in problem(check_env(with_step(lambda env, action, result: ({}, *result[1:]))))


def test_reward_that_is_not_a_number() -> None:
    text = problem(check_env(with_step(lambda env, action, result: (result[0], float("nan"), *result[2:]))))
    assert "bad_reward" in text
    assert "nan" in text


def test_noise_is_found() -> None:
    counter = itertools.count()
    report = check_env(with_step(lambda env, action, result: (f"noise {next(counter)}", *result[1:])))
    assert "not determined by (task, seed, actions)" in problem(report)


def test_an_episode_that_leaks_into_the_next_is_found() -> None:
    class Leaky(CountEnv):
        def reset(self, task: Task, seed: int) -> tuple[str, dict[str, Any]]:
            before = self.resets
            return super().reset(task, seed)[0] + f", game {before}", {}

    assert "opening observation" in problem(check_env(CountSuite(Leaky)))


@pytest.mark.parametrize(("info", "words"), [({}, "missing"), ({"success": None}, "None"), ({"success": 1.0}, "1.0")])
def test_missing_success_flag(info: dict[str, Any], words: str) -> None:
    text = problem(check_env(with_step(lambda env, action, result: (*result[:4], info))))
    assert "info['success']" in text
    assert words in text


def test_reset_that_returns_no_pair() -> None:
    class Bare(CountEnv):
        def reset(self, task: Task, seed: int) -> Any:
            return "text"

    assert "reset must return (observation, info)" in problem(check_env(CountSuite(Bare)))


def test_close_that_raises() -> None:
    class Stuck(CountEnv):
        def close(self) -> None:
            raise RuntimeError("still busy")

    assert "close(): raised: RuntimeError: still busy" in problem(check_env(CountSuite(Stuck)))


def test_make_env_that_raises() -> None:
    def make() -> CountEnv:
        raise FileNotFoundError("levels.json")

    assert "make_env(): raised: FileNotFoundError" in problem(check_env(CountSuite(make)))


def test_an_episode_without_end_is_only_noted() -> None:
    report = check_env(with_step(lambda env, action, result: ("on and on", 0.0, False, False, {})))
    assert report.ok
    assert "max_turns = 5" in report.notes[0]
    assert report.notes[0] in str(report)


class Tasks(CountSuite):
    def __init__(self, train: Sequence[Any], heldout: Sequence[Any]) -> None:
        super().__init__()
        self.splits: dict[Split, Sequence[Any]] = {"train": train, "heldout": heldout}

    def tasks(self, split: Split) -> Sequence[Any]:
        return self.splits[split]


@pytest.mark.parametrize(
    ("train", "heldout", "words"),
    [
        ([task(0), task(1)], [task(1, "heldout")], "in both splits"),
        ([task(0)], [task(0, "heldout", id="other")], "they are the same task"),
        ([task(0), task(0)], [task(1, "heldout")], "twice"),
        ([task(0, "heldout")], [task(1, "heldout")], "says split='heldout'"),
        ([task(0, description=" ")], [task(1, "heldout")], "no description"),
        (["level 1"], [task(1, "heldout")], "not str"),
        ([], [task(1, "heldout")], "nothing to train on"),
    ],
)
def test_bad_tasks(train: Sequence[Any], heldout: Sequence[Any], words: str) -> None:
    assert words in problem(check_env(Tasks(train, heldout)))


def test_no_heldout_tasks_are_only_noted() -> None:
    report = check_env(Tasks([task(0)], []))
    assert report.ok
    assert "held-out" in report.notes[0]


def test_tasks_that_change_between_calls() -> None:
    counter = itertools.count()

    class Fresh(CountSuite):
        def tasks(self, split: Split) -> Sequence[Task]:
            return [task(next(counter), split)]

    assert any("when asked again" in text for text in check_env(Fresh()).problems)


def test_attributes_of_the_suite() -> None:
    class Odd(CountSuite):
        name = ""
        instructions = None  # type: ignore[assignment]
        max_turns = 0
        step_seconds = -1.0

    text = "\n".join(check_env(Odd()).problems)
    for words in ("name must be", "instructions must be text, not NoneType", "max_turns must be", "step_seconds must be"):
        assert words in text


def test_tasks_that_raise() -> None:
    class Broken(CountSuite):
        def tasks(self, split: Split) -> Sequence[Task]:
            raise ConnectionError("no hub")

    assert "ConnectionError: no hub" in problem(check_env(Broken()))


def test_a_judge_that_is_not_sure_what_it_says() -> None:
    class Judge(CountSuite):
        def judge_entry(self, task: Task, text: str) -> Any:
            return 0.5

    assert "judge_entry" in problem(check_env(Judge()))


def test_at_least_one_episode() -> None:
    with pytest.raises(UserError, match="at least one"):
        check_env(CountSuite(), episodes=0)


def test_a_long_list_of_problems_is_cut_for_reading() -> None:
    report = check_env(Tasks([task(i, description="") for i in range(50)], [task(99, "heldout")]))
    assert len(report.problems) == 50
    assert "and 40 more" in str(report)


def test_actions_that_are_offered_are_played_and_must_be_texts() -> None:
    played: list[str] = []

    def hook(env: CountEnv, action: str, result: Any) -> Any:
        played.append(action)
        return (*result[:4], {**result[4], "actions": ["count onward"]})

    assert check_env(with_step(hook)).ok
    assert "count onward" in played
    text = problem(check_env(with_step(lambda env, action, result: (*result[:4], {**result[4], "actions": "go"}))))
    assert "info['actions'] must be a sequence of texts" in text
