"""EnvPool: results in order, every failure a value, nobody else disturbed, environments reused."""

import threading
import time
from typing import Any

import numpy as np
import pytest
from helpers.suites import CountEnv, CountSuite, hang, task

from complementary_rl.envs.pool import EnvPool
from complementary_rl.errors import EnvironmentFault


def pool_of(suite: CountSuite, timeout: float = 5.0, workers: int = 3) -> EnvPool:
    return EnvPool(suite, timeout=timeout, workers=workers)


def breaking_on(word: str, result: Any) -> CountSuite:
    """Environments that return `result`, or raise it, or call it, when they hear `word`."""

    def hook(env: CountEnv, action: str, normal: Any) -> Any:
        if action != word:
            return normal
        if isinstance(result, BaseException):
            raise result
        return result() if callable(result) else result

    return CountSuite(lambda: CountEnv(hook))


def test_results_come_in_the_order_of_the_jobs() -> None:
    pool = pool_of(CountSuite())
    opened = pool.reset([(f"e{i}", task(i), i) for i in range(20)])
    assert [result[0] for result in opened if isinstance(result, tuple)] == [f"level {i}, start {i % 7}" for i in range(20)]
    pool.step([("e3", "go")])
    stepped = pool.step([("e5", "go"), ("e3", "go")])
    assert [result[0] for result in stepped if isinstance(result, tuple)] == ["heard 1", "heard 2"]
    pool.close()


def test_no_jobs_is_no_work() -> None:
    pool = pool_of(CountSuite())
    assert pool.reset([]) == []
    assert pool.step([]) == []
    pool.close()


@pytest.mark.parametrize(
    ("result", "kind", "words"),
    [
        (ValueError("no such door"), "raised", "ValueError: no such door"),
        (SystemExit(3), "raised", "SystemExit"),
        ((b"bytes", 0.0, False, False, {}), "bad_observation", "bytes"),
        ((None, 0.0, False, False, {}), "bad_observation", "NoneType"),
        (("text", 0.0, False, {}), "bad_observation", "4 values"),
        (("text", 0.0, False, False, ["success"]), "bad_observation", "list"),
        ("text", "bad_observation", "str"),
        (("text", float("nan"), False, False, {}), "bad_reward", "nan"),
        (("text", float("-inf"), False, False, {}), "bad_reward", "inf"),
        (("text", "1", False, False, {}), "bad_reward", "'1'"),
        (("text", None, False, False, {}), "bad_reward", "None"),
        (("text", -1e308, False, False, {}), "bad_reward", "at most 1e+30 in size, not -1e+308"),
        (("text", 0.0, True, False, {}), "bad_success", "it is missing"),
        (("text", 0.0, False, True, {"success": 1}), "bad_success", "it is 1"),
    ],
)
def test_a_broken_step_is_a_value_and_the_others_go_on(result: Any, kind: str, words: str) -> None:
    pool = pool_of(breaking_on("bad", result))
    pool.reset([("a", task(0), 0), ("b", task(1), 0), ("c", task(2), 0)])
    left, fault, right = pool.step([("a", "go"), ("b", "bad"), ("c", "go")])
    assert isinstance(fault, EnvironmentFault)
    assert fault.kind == kind
    assert words in str(fault)
    assert isinstance(left, tuple)
    assert isinstance(right, tuple)
    again = pool.step([("a", "go"), ("c", "go")])
    assert [outcome[0] for outcome in again if isinstance(outcome, tuple)] == ["heard 2", "heard 2"]
    pool.close()


def test_a_broken_environment_is_closed_and_never_used_again() -> None:
    suite = breaking_on("bad", ValueError("broken"))
    pool = pool_of(suite)
    pool.reset([("a", task(0), 0)])
    pool.step([("a", "bad")])
    pool.release(["a"])
    pool.reset([("a", task(0), 0)])
    assert len(suite.made) == 2
    deadline = time.monotonic() + 2
    while not suite.made[0].closed and time.monotonic() < deadline:
        time.sleep(0.005)
    assert suite.made[0].closed
    pool.close()


def test_failing_to_make_or_reset_is_a_value_too() -> None:
    def make() -> CountEnv:
        raise OSError("no disk")

    pool = pool_of(CountSuite(make))
    (fault,) = pool.reset([("a", task(0), 0)])
    assert isinstance(fault, EnvironmentFault)
    assert (fault.kind, str(fault)) == ("raised", "make_env: OSError: no disk")

    class Silent(CountEnv):
        def reset(self, task: Any, seed: int) -> Any:
            return "only text"

    (fault,) = pool_of(CountSuite(Silent)).reset([("a", task(0), 0)])
    assert isinstance(fault, EnvironmentFault)
    assert fault.kind == "bad_observation"


def test_a_hung_environment_costs_one_timeout_and_only_its_own_episode() -> None:
    suite = breaking_on("hang", hang)
    pool = pool_of(suite, timeout=0.2, workers=2)
    pool.reset([(f"e{i}", task(i), 0) for i in range(6)])
    start = time.monotonic()
    outcomes = pool.step([("e0", "hang"), *((f"e{i}", "go") for i in range(1, 5)), ("e5", "hang")])
    assert time.monotonic() - start < 1.0
    assert [isinstance(outcome, EnvironmentFault) for outcome in outcomes] == [True, False, False, False, False, True]
    assert isinstance(outcomes[0], EnvironmentFault)
    assert outcomes[0].kind == "hung"
    assert "0.2 s" in str(outcomes[0])
    # The threads were replaced, and the stuck environments are not among those that are reused.
    pool.release([f"e{i}" for i in range(6)])
    assert all(isinstance(outcome, tuple) for outcome in pool.reset([(f"f{i}", task(i), 0) for i in range(6)]))
    assert len(suite.made) == 8
    pool.close()
    assert not suite.made[0].closed


def test_an_environment_that_comes_back_late_is_closed_then() -> None:
    suite = breaking_on("hang", lambda: hang(0.3))
    pool = pool_of(suite, timeout=0.1)
    pool.reset([("a", task(0), 0)])
    (fault,) = pool.step([("a", "hang")])
    assert isinstance(fault, EnvironmentFault)
    assert not suite.made[0].closed
    pool.close()
    deadline = time.monotonic() + 2
    while not suite.made[0].closed and time.monotonic() < deadline:
        time.sleep(0.01)
    assert suite.made[0].closed


def test_more_hung_jobs_than_workers_all_end() -> None:
    pool = pool_of(breaking_on("hang", hang), timeout=0.1, workers=2)
    pool.reset([(f"e{i}", task(i), 0) for i in range(24)])
    start = time.monotonic()
    outcomes = pool.step([(f"e{i}", "hang") for i in range(24)])
    assert time.monotonic() - start < 0.8, "one time limit and not twelve"
    kinds = [outcome.kind for outcome in outcomes if isinstance(outcome, EnvironmentFault)]
    assert kinds[:2] == ["hung", "hung"]
    assert kinds[4:] == ["not_tried"] * 20, "threads that were replaced may have begun one more each"
    pool.close()


def test_a_late_answer_of_a_hung_environment_is_dropped() -> None:
    release = threading.Event()
    pool = pool_of(breaking_on("wait", lambda: release.wait(5) and ("late", 1.0, True, False, {})), timeout=0.1, workers=1)
    pool.reset([("a", task(0), 0), ("b", task(1), 0)])
    (fault,) = pool.step([("a", "wait")])
    release.set()
    assert isinstance(fault, EnvironmentFault)
    (fine,) = pool.step([("b", "go")])
    assert isinstance(fine, tuple)
    assert fine[0] == "heard 1"
    pool.close()


def test_environments_are_reused_after_release_and_closed_at_the_end() -> None:
    suite = CountSuite()
    pool = pool_of(suite)
    for episode in range(3):
        pool.reset([(f"{episode}/{i}", task(i), 0) for i in range(4)])
        pool.release([*(f"{episode}/{i}" for i in range(4)), "unknown"])
    assert len(suite.made) == 4
    assert sum(env.resets for env in suite.made) == 12
    pool.close()
    assert all(env.closed for env in suite.made)
    pool.close()


def test_a_close_that_raises_or_hangs_does_not_stop_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stubborn(CountEnv):
        def close(self) -> None:
            hang()

    monkeypatch.setattr("complementary_rl.envs.pool._CLOSE_SECONDS", 0.1)
    pool = pool_of(CountSuite(Stubborn))
    pool.reset([("a", task(0), 0)])
    start = time.monotonic()
    pool.close()
    assert time.monotonic() - start < 1.0


def test_numbers_of_any_kind_become_plain_ones() -> None:
    pool = pool_of(breaking_on("np", ("text", np.float32(0.5), np.bool_(True), np.bool_(False), {"success": np.bool_(True)})))
    pool.reset([("a", task(0), 0)])
    (result,) = pool.step([("a", "np")])
    assert isinstance(result, tuple)
    assert result[:4] == ("text", 0.5, True, False)
    assert [type(value) for value in result[:4]] == [str, float, bool, bool]
    pool.close()


def test_interrupted_calls_leave_a_usable_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = pool_of(CountSuite(), workers=1)
    pool.reset([("a", task(0), 0)])
    with monkeypatch.context() as patch:

        def interrupt(*_: Any) -> bool:
            raise KeyboardInterrupt

        patch.setattr(threading.Event, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pool.step([("a", "go")])
    (result,) = pool.step([("a", "go")])
    assert isinstance(result, tuple)
    pool.close()
