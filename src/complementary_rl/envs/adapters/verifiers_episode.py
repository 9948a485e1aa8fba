"""Episodes of verifiers, whose environments call the agent, as environments that are called by it."""

import asyncio
import queue
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import verifiers.v1 as vf

from complementary_rl.envs.adapters.verifiers_seat import Actor, play
from complementary_rl.envs.protocol import StepResult
from complementary_rl.types import Task

_CLOSE_SECONDS = 5.0


class Episodes:
    """The text environment: verifiers plays an episode in a thread of its own, and waits there for the actions.

    `tasks` are verifiers' by our ids, `seat` is the name of the agent that is played. Raises TimeoutError when verifiers does not go on
    within `timeout` seconds, and RuntimeError where it records an error.
    """

    def __init__(self, config: vf.EnvConfig, seat: str, tasks: Mapping[str, vf.Task], *, solved_at: float, timeout: float) -> None:
        self._env = vf.load_environment(config)
        self._seat = seat
        self._tasks = tasks
        self._solved_at = solved_at
        self._timeout = timeout
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="crl-verifiers", daemon=True).start()
        self._episode: Future[vf.Trace] = Future()

    def reset(self, task: Task, seed: int) -> tuple[str, dict[str, Any]]:
        self._episode.cancel()
        self._actor = Actor()
        self._episode = asyncio.run_coroutine_threadsafe(play(self._env, self._seat, self._tasks[task.id], self._actor), self._loop)
        self._episode.add_done_callback(self._actor.told.put)
        told = self._listen()
        if isinstance(told, str):
            return told, {}
        raise RuntimeError(f"the episode ended before the actor was asked: {told.result().stop_condition}")

    def step(self, action: str) -> StepResult:
        self._loop.call_soon_threadsafe(self._actor.said.put_nowait, action)
        told = self._listen()
        if isinstance(told, str):
            return told, 0.0, False, False, {}
        trace = told.result()
        info = {"success": not trace.is_truncated and trace.reward >= self._solved_at}
        return f"The episode is over, reward {trace.reward:g}.", trace.reward, not trace.is_truncated, trace.is_truncated, info

    def _listen(self) -> "str | Future[vf.Trace]":
        try:
            return self._actor.told.get(timeout=self._timeout)
        except queue.Empty:
            raise TimeoutError(f"verifiers did not go on within {self._timeout:g} s") from None

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result(_CLOSE_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
