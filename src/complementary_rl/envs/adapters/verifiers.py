"""Verifiers' environments as a suite: ``suite = "verifiers"``, ``options = { id = "textarena", taskset = { game = "Wordle-v0" } }``.

Tried with verifiers 0.4.0 (MIT; the API of `verifiers.v1`, with Taskset, Task and Env.run). The other way round is `as_verifiers`.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any

from complementary_rl.envs.options import require_at_least
from complementary_rl.envs.protocol import Suite, TextEnv
from complementary_rl.errors import UserError
from complementary_rl.types import Split, Task

try:
    import verifiers.v1 as vf

    from complementary_rl.envs.adapters.verifiers_episode import Episodes
    from complementary_rl.envs.adapters.verifiers_seat import check_playable, seat_of
except ImportError as error:
    raise UserError(f"the suite verifiers needs verifiers ({error}); run: pip install 'complementary-rl[verifiers]'") from error


class FromVerifiers(Suite):
    """The environment of the taskset `id` (an installed package, or one that verifiers ships) with its settings `taskset`.

    The first `train_tasks` tasks are for training, the next `heldout_tasks` held out. A task's system prompt is its rules. The reward is
    verifiers' weighted sum, given at the end (also of an episode that ran out of `max_turns`); success is an end with `solved_at` or
    more. An episode's seed is not heard: what a task leaves open, verifiers leaves to the environment. No turn may take more than
    `timeout` seconds. Raises UserError for an unknown id, settings that do not fit, too few tasks, and for what the actor cannot play:
    several agents, tools, and hooks between agent and model.
    """

    needs = "verifiers (MIT)"

    def __init__(
        self,
        id: str,
        *,
        taskset: dict[str, Any] | None = None,
        description: str = "",
        solved_at: float = 1.0,
        timeout: float = 60.0,
        train_tasks: int = 64,
        heldout_tasks: int = 16,
        max_turns: int = 30,
    ) -> None:
        require_at_least("verifiers", 1, train_tasks=train_tasks, max_turns=max_turns)
        require_at_least("verifiers", 0, heldout_tasks=heldout_tasks)
        self.name = f"verifiers/{id}"
        self.max_turns, self.solved_at, self.timeout = max_turns, solved_at, timeout
        wanted = {"taskset": {"id": id, **(taskset or {})}}
        try:
            self.seat = seat_of(vf.resolve_env_config(wanted))
            # The program and the model of this agent are never asked; see `verifiers_seat`.
            agent = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}, "model": "actor", "max_turns": max_turns}
            self.config = vf.resolve_env_config({**wanted, self.seat: agent})
            played = list(islice(vf.load_environment(self.config).taskset, train_tasks + heldout_tasks))
            check_playable(played)
        except (ImportError, AttributeError, TypeError, ValueError, LookupError) as error:
            raise UserError(f"verifiers cannot play {id!r} here: {error}") from error
        if len(played) < train_tasks + heldout_tasks:
            raise UserError(f"{self.name} has {len(played)} tasks; lower train_tasks and heldout_tasks to as many together")
        self.played: dict[str, vf.Task] = {}
        self._tasks: dict[Split, list[Task]] = {"train": [], "heldout": []}
        for index, task in enumerate(played):
            split: Split = "train" if index < train_tasks else "heldout"
            told = description or task.data.description or task.data.name or f"Solve task {index} of {id}."
            self._tasks[split].append(Task(f"{self.name}/{index}", self.name, told, index, split, self.name))
            self.played[f"{self.name}/{index}"] = task

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._tasks[split]

    def instructions_for(self, task: Task) -> str:
        return self.played[task.id].data.system_prompt or ""

    def make_env(self) -> TextEnv:
        return Episodes(self.config, self.seat, self.played, solved_at=self.solved_at, timeout=self.timeout)
