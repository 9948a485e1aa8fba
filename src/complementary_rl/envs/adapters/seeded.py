"""What the adapters share: environments that begin from a seed and follow Gymnasium's calls, as a suite. Duck-typed, needs no package."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from complementary_rl.envs.options import require_at_least
from complementary_rl.envs.protocol import StepResult, Suite, TextEnv
from complementary_rl.seeds import derive_seed
from complementary_rl.types import Split, Task

# Many environments hand their seed to generators that take 32 bits.
_SEEDS = 2**31


class SeededEnv(Protocol):
    """What is asked of an environment: Gymnasium's calls. Observations and actions are of whatever kind `tell` and `parse` know."""

    def reset(self, *, seed: int) -> tuple[Any, dict[str, Any]]: ...

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]: ...

    def close(self) -> None: ...


class SeededSuite(Suite):
    """A suite out of the environments that `make` makes; `description` is the key under which experience is filed.

    A task is a seed: `train_tasks` and `heldout_tasks` of them are drawn from `seed`, and every episode of a task begins with that seed;
    with `fresh` the episode's seed counts too. `tell` makes text of an observation and `parse` an action of a text, or None where it is
    none. Success is ``info["success"]`` or ``info["is_success"]`` of the last step, else that the environment ended it by itself and the
    rewards add up to `solved_at` at least (None: to more than 0). Raises UserError for numbers out of range.
    """

    def __init__(
        self,
        name: str,
        description: str,
        make: Callable[[], SeededEnv],
        instructions: str = "",
        *,
        train_tasks: int,
        heldout_tasks: int,
        max_turns: int,
        fresh: bool,
        seed: int,
        solved_at: float | None = None,
        tell: Callable[[Any], str] | None = None,
        parse: Callable[[str], Any] | None = None,
    ) -> None:
        require_at_least(name, 1, train_tasks=train_tasks, max_turns=max_turns)
        require_at_least(name, 0, heldout_tasks=heldout_tasks)
        self.name = name
        self.instructions = instructions
        self.max_turns = max_turns
        self.fresh = fresh
        self.solved_at = solved_at
        self.tell = tell or (lambda observation: observation)
        self.parse = parse or (lambda text: text)
        self._make = make
        counts: dict[Split, int] = {"train": train_tasks, "heldout": heldout_tasks}
        self._tasks = {
            split: [
                Task(f"{name}/{split}-{i}", name, description, derive_seed("gymnasium", split, seed, i) % _SEEDS, split, name)
                for i in range(count)
            ]
            for split, count in counts.items()
        }

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._tasks[split]

    def make_env(self) -> TextEnv:
        return _SeededTextEnv(self, self._make())


class _SeededTextEnv:
    def __init__(self, suite: SeededSuite, env: SeededEnv) -> None:
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
        success = bool(info.get("success", info.get("is_success", terminated and self._enough())))
        return self._told, float(reward), bool(terminated), bool(truncated) or out_of_turns, {**info, "success": success}

    def _enough(self) -> bool:
        return self._rewards > 0 if self._suite.solved_at is None else self._rewards >= self._suite.solved_at

    def close(self) -> None:
        self._env.close()
