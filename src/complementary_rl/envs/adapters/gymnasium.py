"""Gymnasium both ways: its text environments as a suite (`FromGymnasium`), and a suite as its environment (`AsGymnasium`)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from complementary_rl.envs.protocol import StepResult, Suite, TextEnv
from complementary_rl.errors import UserError
from complementary_rl.seeds import derive_seed
from complementary_rl.types import Split, Task

try:
    import gymnasium
except ImportError as error:
    raise UserError(f"the adapter needs gymnasium ({error}); run: pip install 'complementary-rl[gymnasium]'") from error

# Many environments hand their seed to generators that take 32 bits.
_SEEDS = 2**31


class FromGymnasium(Suite):
    """A suite out of `env`: an id that is registered with Gymnasium, or a function that makes an environment.

    A task is a seed: `train_tasks` and `heldout_tasks` of them are drawn from `seed`, and every episode of a task begins with that seed;
    with `fresh` the episode's seed counts too. Observations and actions are text; for others, `tell` makes text of an observation and
    `parse` an action of a text, or None where it is none. Success is ``info["success"]`` or ``info["is_success"]`` of the last step,
    else that the environment ended it by itself and the rewards add up to more than 0. `description` is the goal in words: the key
    under which experience is filed.
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
        tell: Callable[[Any], str] | None = None,
        parse: Callable[[str], Any] | None = None,
    ) -> None:
        self.name = name or str(f"gymnasium/{env}" if isinstance(env, str) else getattr(env, "__name__", "gymnasium"))
        self.instructions = instructions
        self.max_turns = max_turns
        self.fresh = fresh
        self.tell = tell or (lambda observation: observation)
        self.parse = parse or (lambda text: text)
        self._make: Callable[[], Any] = (lambda: gymnasium.make(env)) if isinstance(env, str) else env
        counts: dict[Split, int] = {"train": train_tasks, "heldout": heldout_tasks}
        seeds = {
            (split, i): derive_seed("gymnasium", split, seed, i) % _SEEDS for split, count in counts.items() for i in range(count)
        }
        self._tasks = {
            split: [
                Task(f"{self.name}/{split}-{i}", self.name, description, seeds[split, i], split, self.name) for i in range(count)
            ]
            for split, count in counts.items()
        }

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._tasks[split]

    def make_env(self) -> TextEnv:
        return _FromGymnasiumEnv(self, self._make())


class _FromGymnasiumEnv:
    def __init__(self, suite: FromGymnasium, env: Any) -> None:
        self._suite = suite
        self._env = env

    def reset(self, task: Task, seed: int) -> tuple[str, dict[str, Any]]:
        start = derive_seed("gymnasium-episode", task.seed, seed) % _SEEDS if self._suite.fresh else task.seed
        observation, info = self._env.reset(seed=start)
        self._told, self._turns, self._rewards = self._suite.tell(observation), 0, 0.0
        return self._told, dict(info)

    def step(self, action: str) -> StepResult:
        self._turns += 1
        out_of_turns = self._turns >= self._suite.max_turns
        parsed = self._suite.parse(action)
        if parsed is None:
            return f"That is no action here.\n{self._told}", 0.0, False, out_of_turns, {"success": False}
        observation, reward, terminated, truncated, info = self._env.step(parsed)
        self._told, self._rewards = self._suite.tell(observation), self._rewards + float(reward)
        success = bool(info.get("success", info.get("is_success", terminated and self._rewards > 0)))
        return self._told, float(reward), bool(terminated), bool(truncated) or out_of_turns, {**info, "success": success}

    def close(self) -> None:
        self._env.close()


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
