"""OpenEnv servers as suites, with real ones: started here by OpenEnv's own server code."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("openenv", reason="needs the extra 'openenv'")

import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State

from complementary_rl.envs.adapters.openenv import OpenEnv
from complementary_rl.envs.checker import check_env
from complementary_rl.envs.registry import make_suite
from complementary_rl.errors import UserError
from complementary_rl.seeds import rng


class Guess(Action):
    number: int


class Hint(Observation):
    hint: str = ""
    low: int = 1


class GuessNumber(Environment):
    """Guess a number up to 8; ends after four."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State()

    def reset(self, seed: int | None = None, **options: Any) -> Hint:
        self._state = State()
        self._secret = int(rng("openenv-test", seed or 0).integers(1, 9))
        return Hint(hint="guess")

    def step(self, action: Guess) -> Hint:
        self._state.step_count += 1
        if action.number == 99:
            time.sleep(3)
        right = action.number == self._secret
        hint = "right" if right else "higher" if action.number < self._secret else "lower"
        return Hint(hint=hint, reward=float(right), done=right or self._state.step_count == 4)

    @property
    def state(self) -> State:
        return self._state


class Say(Action):
    message: str


class Words(Action):
    verb: str
    noun: str


class Echo(GuessNumber):
    """Tells what it was told as JSON would have it; never ends."""

    def step(self, action: Action) -> Observation:
        told = getattr(action, "message", None) or f"{getattr(action, 'verb', '')} {getattr(action, 'noun', '')}"
        return Hint(hint=told, reward=0.1)


@contextmanager
def serving(environment: type, action: type, sessions: int = 16) -> Iterator[str]:
    app = create_fastapi_app(environment, action, Hint, max_concurrent_envs=sessions)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.02)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join(10)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving(GuessNumber, Guess) as url:
        yield url


def guessing(url: str, **options: Any) -> OpenEnv:
    suite = make_suite("openenv", url=url, description="Guess a number.", train_tasks=8, heldout_tasks=4, **options)
    assert isinstance(suite, OpenEnv)
    return suite


def test_a_server_keeps_the_protocol(server: str) -> None:
    report = check_env(guessing(server), episodes=6)
    assert report.ok, str(report)
    assert report.notes == []


def test_an_episode_is_won_and_the_seed_is_the_servers(server: str) -> None:
    suite = guessing(server)
    env = suite.make_env()
    secrets = set()
    for task in suite.tasks("train"):
        assert env.reset(task, 0) == ("guess", {})
        low, high, over = 1, 8, False
        while not over:
            guess = (low + high) // 2
            told, reward, over, truncated, info = env.step(str(guess))
            low, high = (guess + 1, high) if told == "higher" else (low, guess - 1)
        assert (told, reward, truncated, info["success"]) == ("right", 1.0, False, True)
        secrets.add(guess)
    env.close()
    assert len(secrets) > 3


def test_an_end_without_enough_reward_is_no_success(server: str) -> None:
    suite = guessing(server)
    env = suite.make_env()
    env.reset(suite.tasks("train")[0], 0)
    steps = [env.step("0") for _ in range(4)]
    assert steps[-1][1:] == (0.0, True, False, {"success": False})
    env.close()


def test_what_the_server_finds_invalid_is_an_observation(server: str) -> None:
    suite = guessing(server)
    env = suite.make_env()
    env.reset(suite.tasks("train")[0], 0)
    for odd in ("seven", '{"number": "x"}', '{"letter": 1}', "[" * 5000):
        assert env.step(odd)[:3] == ("That is no action here.", 0.0, False)
    assert env.step('{"number": 0}')[0] == "higher"
    env.close()


def test_several_fields_are_asked_for_as_json() -> None:
    with serving(Echo, Words) as url:
        suite = guessing(url, max_turns=3)
        assert '"verb"' in suite.instructions
        env = suite.make_env()
        env.reset(suite.tasks("train")[0], 0)
        assert env.step('{"verb": "open", "noun": "door"}')[0] == "open door"
        assert env.step("open door")[0].startswith("That is no action here.")
        assert env.step('{"verb": "open", "noun": "door"}')[2:4] == (False, True)
        env.close()


def test_a_server_that_is_away_is_told() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(UserError, match=f"no OpenEnv server answers at {url} .*refused.*start it"):
        guessing(url)
    with pytest.raises(UserError, match="no OpenEnv server answers at nowhere"):
        guessing("nowhere")


def test_a_step_that_takes_too_long_fails_in_time_and_the_next_episode_plays(server: str) -> None:
    suite = guessing(server, timeout=1.0)
    env = suite.make_env()
    env.reset(suite.tasks("train")[0], 0)
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        env.step("99")
    assert time.monotonic() - start < 2.5
    time.sleep(2.5)
    assert env.reset(suite.tasks("train")[0], 0)[0] == "guess"
    env.close()


def test_a_server_that_goes_away_or_is_full_is_a_fault_of_the_episode() -> None:
    with serving(Echo, Say, sessions=1) as url:
        suite = guessing(url)
        env, other = suite.make_env(), suite.make_env()
        env.reset(suite.tasks("train")[0], 0)
        assert env.step("hello")[0] == "hello"
        with pytest.raises(Exception, match="CAPACITY_REACHED"):
            other.reset(suite.tasks("train")[0], 0)
        other.close()
        env.close()
    with pytest.raises(ConnectionError):
        suite.make_env().reset(suite.tasks("train")[0], 0)
