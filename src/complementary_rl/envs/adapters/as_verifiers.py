"""A suite as an environment of verifiers, which finds it as the taskset ``complementary-rl-verifiers``; tried with verifiers 0.4.0 (MIT).

The top-level package `complementary_rl_verifiers` exports what is here: verifiers' ids are names of top-level packages.
"""

import asyncio
from collections.abc import Iterator
from typing import Any, Literal

from complementary_rl.envs.protocol import Suite
from complementary_rl.envs.registry import make_suite
from complementary_rl.errors import UserError
from complementary_rl.seeds import derive_seed

try:
    import verifiers.v1 as vf
except ImportError as error:
    raise UserError(f"the adapter needs verifiers ({error}); run: pip install 'complementary-rl[verifiers]'") from error


class SuiteTasksetConfig(vf.TasksetConfig):
    suite: str
    """Registry name, ``module:attribute`` or file, as `env.suite` of a run."""
    options: dict[str, Any] = {}  # noqa: RUF012  # pydantic copies it
    """Keyword arguments of the suite."""
    split: Literal["train", "heldout"] = "train"
    seed: int = 0
    """Fixes the episode of each task: all rollouts of a task begin alike."""


class SuiteTask(vf.Task[vf.TaskData]):
    @property
    def key(self) -> str:
        return str(self.data.id)


class SuiteTaskset(vf.Taskset[SuiteTask, SuiteTasksetConfig]):
    """The tasks of a suite's split; rules are the system prompt. Raises UserError as `make_suite` does."""

    def __init__(self, config: SuiteTasksetConfig) -> None:
        super().__init__(config)
        self.suite: Suite = make_suite(config.suite, **config.options)
        self.tasks = {task.id: task for task in self.suite.tasks(config.split)}

    def load(self) -> Iterator[SuiteTask]:
        for id, task in self.tasks.items():
            rules = self.suite.instructions_for(task) or None
            yield SuiteTask(vf.TaskData(id=id, name=id, description=task.description, system_prompt=rules), self.config.task)


class SuiteEnvConfig(vf.EnvConfig):
    actor: vf.AgentConfig = vf.AgentConfig.model_validate({"harness": {"id": "null"}, "runtime": {"type": "subprocess"}})
    """Who plays: by default a plain conversation, which runs no code of the model's and so needs no sandbox."""


class SuiteEnv(vf.Env[SuiteEnvConfig]):
    """One episode of a suite: a turn of the conversation is an action.

    Records the reward ``suite_reward``, the sum over the steps, and the metric ``success``, 1 or 0.
    """

    async def run(self, task: SuiteTask, agents: vf.Agents) -> None:
        suite, ours = self.taskset.suite, self.taskset.tasks[task.data.id]
        env = await asyncio.to_thread(suite.make_env)
        total, success = 0.0, False
        try:
            async with agents.actor.interaction(task) as interaction:
                seed = derive_seed("verifiers", self.taskset.config.seed, ours.id)
                observation, _ = await asyncio.to_thread(env.reset, ours, seed)
                told = f"{ours.description}\n\n{observation}"
                for _ in range(suite.max_turns_for(ours)):
                    segment = await interaction.turn(told)
                    if segment.terminated:
                        break
                    told, reward, terminated, truncated, info = await asyncio.to_thread(env.step, segment.last_reply)
                    total += float(reward)
                    if terminated or truncated:
                        success = bool(info["success"])
                        break
        finally:
            await asyncio.to_thread(env.close)
        interaction.trace.record_reward("suite_reward", total)
        interaction.trace.record_metric("success", float(success))
