"""Many environments stepped at once, by threads, such that no environment can take the others with it.

Whatever an environment does wrong becomes an `EnvironmentFault` *value* in place of its result: ``raised``, ``hung`` (thread and
environment are left behind, and closed if the call ever returns), ``not_tried`` (all before it of its part hung), ``bad_observation`` (not
text, or not the shape the protocol asks for), ``bad_reward`` or ``bad_success``.
"""

import math
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from complementary_rl.envs.crew import Crew, what_was_raised
from complementary_rl.envs.protocol import StepResult, Suite, TextEnv
from complementary_rl.errors import EnvironmentFault
from complementary_rl.types import Task

ResetResult = tuple[str, dict[str, Any]]

# Closing is a courtesy to environments that behave; nobody waits longer for one that does not.
_CLOSE_SECONDS = 5.0

LARGEST_REWARD = 1e30
"""Of one step, in size. Sums and variances of larger ones might not fit a float."""


class EnvPool:
    """Environments of one suite, made when needed (by several threads at a time) and reused between episodes of the same part.

    `timeout` is the seconds one reset (making the environment included) or one step may take; `workers` the number of threads.
    Calls block; they may come from any thread and take their turns.
    """

    def __init__(self, suite: Suite, *, timeout: float, workers: int) -> None:
        assert timeout > 0
        assert workers > 0
        self._suite = suite
        self._timeout = timeout
        self._crew = Crew(workers)
        self._turn = threading.Lock()
        self._idle: defaultdict[str, list[TextEnv]] = defaultdict(list)
        self._playing: dict[str, tuple[str, TextEnv]] = {}

    def reset(self, jobs: Sequence[tuple[str, Task, int]]) -> list[ResetResult | EnvironmentFault]:
        """Begin the episodes (key, task, seed) under keys that are not in use. Returns (observation, info) or a fault for each."""
        with self._turn:
            assert not self._playing.keys() & {key for key, _, _ in jobs}, "an episode with this key is already being played"
            parts = [self._suite.part_of(task) for _, task, _ in jobs]
            environments: list[TextEnv | None] = [self._idle[part].pop() if self._idle[part] else None for part in parts]

            def begin(index: int) -> ResetResult:
                environment = environments[index]
                if environment is None:
                    environment = environments[index] = self._make()
                return _checked_reset(environment.reset(*jobs[index][1:]))

            late = _closing(environments)
            outcomes = self._crew.run(begin, len(jobs), self._timeout, kinds=parts, late=late)
            for (key, _, _), part, environment, outcome in zip(jobs, parts, environments, outcomes, strict=True):
                if isinstance(outcome, EnvironmentFault):
                    _discard(environment, outcome)
                else:
                    assert environment is not None
                    self._playing[key] = part, environment
            return outcomes

    def step(self, jobs: Sequence[tuple[str, str]]) -> list[StepResult | EnvironmentFault]:
        """Take the actions (key, text), one per key. Returns the environment's 5-tuple or a fault for each; after a fault its key
        is free again."""
        with self._turn:
            playing = [self._playing[key] for key, _ in jobs]
            outcomes = self._crew.run(
                lambda index: _checked_step(playing[index][1].step(jobs[index][1])),
                len(jobs),
                self._timeout,
                kinds=[part for part, _ in playing],
                late=_closing([environment for _, environment in playing]),
            )
            for (key, _), outcome in zip(jobs, outcomes, strict=True):
                if isinstance(outcome, EnvironmentFault):
                    _discard(self._playing.pop(key)[1], outcome)
            return outcomes

    def release(self, keys: Sequence[str]) -> None:
        """Give the environments of finished episodes back for reuse. Unknown keys are ignored."""
        with self._turn:
            for key in keys:
                if key in self._playing:
                    part, environment = self._playing.pop(key)
                    self._idle[part].append(environment)

    def _make(self) -> TextEnv:
        try:
            return self._suite.make_env()
        except Exception as error:
            raise EnvironmentFault("raised", f"make_env: {what_was_raised(error)}") from error

    def close(self) -> None:
        """Close every environment, giving each a few seconds at most, and let the threads end. Idempotent."""
        with self._turn:
            environments = [environment for idle in self._idle.values() for environment in idle]
            environments += [environment for _, environment in self._playing.values()]
            self._idle.clear()
            self._playing.clear()
            self._crew.run(lambda index: environments[index].close(), len(environments), _CLOSE_SECONDS)
            self._crew.stop()


def _discard(environment: TextEnv | None, fault: EnvironmentFault) -> None:
    # A hung environment still has a thread inside it and must not be touched by another: that one closes it when it comes out.
    if environment is not None and fault.kind != "hung":
        threading.Thread(target=_close_quietly, args=(environment,), daemon=True).start()


def _closing(environments: Sequence[TextEnv | None]) -> Callable[[int], None]:
    """What to do with one of `environments` that hung, once it answers after all."""
    return lambda index: _close_quietly(environments[index])


def _close_quietly(environment: TextEnv | None) -> None:
    try:
        if environment is not None:
            environment.close()
    except Exception:
        # It has just been reported as faulty and is not used again: that it cannot close either changes nothing.
        return


def _checked_reset(result: object) -> ResetResult:
    if not isinstance(result, tuple) or len(result) != 2:
        raise EnvironmentFault("bad_observation", f"reset must return (observation, info), not {_shape(result)}")
    observation, info = result
    return _text(observation), _info(info)


def _checked_step(result: object) -> StepResult:
    if not isinstance(result, tuple) or len(result) != 5:
        raise EnvironmentFault(
            "bad_observation", f"step must return (observation, reward, terminated, truncated, info), not {_shape(result)}"
        )
    observation, reward, terminated, truncated, info = result
    number = float(reward) if isinstance(reward, Real) else math.nan
    if not abs(number) <= LARGEST_REWARD:
        raise EnvironmentFault(
            "bad_reward", f"the reward must be a finite number of at most {LARGEST_REWARD:g} in size, not {reward!r}"
        )
    ended, told = bool(terminated) or bool(truncated), _info(info)
    if ended:
        told["success"] = _success(told)
    return _text(observation), number, bool(terminated), bool(truncated), told


def _text(observation: object) -> str:
    if not isinstance(observation, str):
        raise EnvironmentFault("bad_observation", f"the observation must be text, not {type(observation).__name__}")
    return observation


def _info(info: object) -> dict[str, Any]:
    if not isinstance(info, Mapping):
        raise EnvironmentFault("bad_observation", f"info must be a mapping, not {type(info).__name__}")
    return dict(info)


def _success(info: Mapping[str, Any]) -> bool:
    success = info.get("success")
    if not isinstance(success, bool | np.bool_):
        found = f"it is {success!r}" if "success" in info else "it is missing"
        raise EnvironmentFault("bad_success", f"when an episode ends info['success'] must be True or False; {found}")
    return bool(success)


def _shape(result: object) -> str:
    return f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
