"""Playing episodes with a scripted actor through the real runner, pool and codec."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from complementary_rl.chat.codec import ChatCodec
from complementary_rl.engines.protocol import SamplingParams
from complementary_rl.envs.pool import EnvPool
from complementary_rl.experience.questions import Answer, Question
from complementary_rl.prompts import PromptSet
from complementary_rl.rollout.plan import EpisodePlan, Shown
from complementary_rl.rollout.runner import RolloutRunner
from helpers.actors import ScriptedActor
from helpers.suites import CountEnv, CountSuite, task

HINT, NOTHING = Shown(((3, "say go"),)), Shown()
PARAMS = SamplingParams(temperature=0.7, max_new_tokens=16)


def plan(name: str = "e", *, shown: Shown = NOTHING, tool: bool = False, seed: int = 0, **fields: Any) -> EpisodePlan:
    values = {"task": task(0), "step": 4, "group": 1, "member": 2, "sampling_seed": 11} | fields
    return EpisodePlan(id=name, seed=seed, shown=shown, tool=tool, **values)


class Played:
    """What `play` brings back: the episodes by id, the faults, and all who took part."""

    def __init__(self, actor: ScriptedActor, suite: CountSuite) -> None:
        self.actor = actor
        self.suite = suite
        self.pool = EnvPool(suite, timeout=0.3, workers=2)
        self.asked: list[list[Question]] = []

    async def run(
        self,
        plans: Sequence[EpisodePlan],
        *,
        budget: int = 2,
        timeout: float = 5.0,
        max_turns: int | None = 5,
        ask: Any = None,
        gate: Any = None,
        prompts: str = "compact",
        **options: Any,
    ) -> None:
        self.runner = RolloutRunner(
            self.suite,
            self.pool,
            self.actor,  # type: ignore[arg-type]
            ChatCodec(self.actor.tokenizer),
            PromptSet.load(prompts),
            max_turns=max_turns,
            tool_budget=budget,
            tool_timeout=timeout,
            **options,
        )

        async def recorded(questions: Sequence[Question], step: int) -> list[Answer | None]:
            self.asked.append(list(questions))
            return await ask(questions, step)

        try:
            episodes, self.faults = await self.runner.run(plans, PARAMS, recorded if ask is not None else None, gate)
        finally:
            self.pool.close()
        self.order = [episode.id for episode in episodes]
        self.episodes = {episode.id: episode for episode in episodes}


def play(
    plans: Sequence[EpisodePlan],
    script: dict[str, Sequence[str]] | None = None,
    *,
    env: Callable[[], CountEnv] = CountEnv,
    max_context: int = 10_000,
    tokenizer: Any = None,
    **options: Any,
) -> Played:
    """Play all plans with an actor that says what `script` has for each."""
    played = Played(ScriptedActor(script, max_context=max_context, tokenizer=tokenizer), CountSuite(env))
    asyncio.run(played.run(plans, **options))
    return played


async def answer(questions: Sequence[Question], step: int) -> list[Answer | None]:
    return [Answer(f"on {question.question}", question.id) for question in questions]
