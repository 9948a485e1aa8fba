"""Gymnasium both ways: its text environments as a suite (`FromGymnasium`), and a suite as its environment (`AsGymnasium`)."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from complementary_rl.envs.adapters.ids import check_id
from complementary_rl.envs.adapters.seeded import SeededSuite
from complementary_rl.envs.protocol import StepResult, Suite
from complementary_rl.errors import UserError
from complementary_rl.types import Split

try:
    import gymnasium
except ImportError as error:
    raise UserError(f"the adapter needs gymnasium ({error}); run: pip install 'complementary-rl[gymnasium]'") from error


class FromGymnasium(SeededSuite):
    """A suite out of `env`: an id that is registered with Gymnasium, or a function that makes an environment.

    Tasks, seeds and success are those of `SeededSuite`. Observations and actions are text; for others, `tell` makes text of an
    observation and `parse` an action of a text, or None where it is none. Raises UserError for an unknown id.
    """

    needs = "gymnasium (MIT)"

    def __init__(
        self,
        env: str | Callable[[], Any],
        description: str,
        instructions: str = "",
        *,
        name: str | None = None,
        train_tasks: int = 256,
        heldout_tasks: int = 64,
        max_turns: int = 30,
        fresh: bool = False,
        seed: int = 0,
        solved_at: float | None = None,
        tell: Callable[[Any], str] | None = None,
        parse: Callable[[str], Any] | None = None,
    ) -> None:
        # "module:id" is registered by importing the module, which only making it does.
        if isinstance(env, str) and ":" not in env:
            check_id("gymnasium", env, gymnasium.registry)
        super().__init__(
            name or str(f"gymnasium/{env}" if isinstance(env, str) else getattr(env, "__name__", "gymnasium")),
            description,
            partial(gymnasium.make, env) if isinstance(env, str) else env,
            instructions,
            train_tasks=train_tasks,
            heldout_tasks=heldout_tasks,
            max_turns=max_turns,
            fresh=fresh,
            seed=seed,
            solved_at=solved_at,
            tell=tell,
            parse=parse,
        )


class AnyText(gymnasium.spaces.Text):
    """Every text: Gymnasium's own space wants the alphabet and the greatest length to be known. Samples are words without meaning."""

    def __init__(self) -> None:
        super().__init__(max_length=32)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)


class AsGymnasium(gymnasium.Env[str, str]):
    """A suite's split as one Gymnasium environment; text in, text out.

    `reset` draws a task, or takes ``options={"task": ID}``; its info holds the task's id, description and instructions,
    which the opening observation does not repeat. Raises UserError for a task that the split does not have.
    """

    def __init__(self, suite: Suite, split: Split = "train") -> None:
        self.observation_space = AnyText()
        self.action_space = AnyText()
        self._suite = suite
        self._tasks = {task.id: task for task in suite.tasks(split)}
        self._env = suite.make_env()

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        ids = list(self._tasks)
        wanted = (options or {}).get("task") or ids[int(self.np_random.integers(len(ids)))]
        if wanted not in self._tasks:
            raise UserError(f"{self._suite.name} has no task {wanted!r} in this split; it has {len(ids)}, such as {ids[0]!r}")
        task = self._tasks[wanted]
        observation, info = self._env.reset(task, int(self.np_random.integers(2**62)))
        self._turns, self._limit = 0, self._suite.max_turns_for(task)
        about = {"task": task.id, "description": task.description, "instructions": self._suite.instructions_for(task)}
        return observation, {**info, **about}

    def step(self, action: str) -> StepResult:
        self._turns += 1
        observation, reward, terminated, truncated, info = self._env.step(action.strip())
        out_of_turns = self._turns >= self._limit and not terminated
        return observation, reward, terminated, truncated or out_of_turns, {"success": False, **info}

    def close(self) -> None:
        self._env.close()
