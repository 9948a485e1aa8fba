"""The seat of the agent in an environment of verifiers, taken by an actor in place of a program that calls a model."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.graph import prepare_turn
from verifiers.v1.types import content_text
from verifiers.v1.utils.decorators import discover_decorated


class Actor:
    """The two ends of a conversation: `told` is read by the suite's thread, `said` by verifiers' loop."""

    def __init__(self) -> None:
        self.told: SimpleQueue[str | Future[vf.Trace]] = SimpleQueue()
        self.said: asyncio.Queue[str] = asyncio.Queue()

    async def answer(self, observation: str) -> str:
        self.told.put(observation)
        return await self.said.get()


def seat_of(config: vf.EnvConfig) -> str:
    """The name of an environment's only agent. Raises ValueError where there are several."""
    names = [str(name) for name, value in config if isinstance(value, vf.AgentConfig)]
    if len(names) != 1:
        raise ValueError(f"it has the agents {', '.join(names)}; an actor can be one only")
    return names[0]


def check_playable(tasks: Sequence[vf.Task]) -> None:
    """Raise ValueError for tasks (of one type) with what only verifiers' own programs and their proxy have."""
    for task in tasks[:1]:
        hooks = [*task.hooks("stop"), *discover_decorated(task, "intercept")]
        if hooks or task.toolsets(task.config) or task.NEEDS_CONTAINER:
            raise ValueError(
                f"{type(task).__name__} has tools, a container, or hooks between agent and model; an actor has text only"
            )


async def play(env: "vf.Env[Any]", seat: str, task: vf.Task, actor: Actor) -> vf.Trace:
    """One episode, scored. Raises RuntimeError where verifiers records an error."""
    agents: vf.Agents[_Agent] = vf.Agents(env.config, lambda name, config: _Agent(config, actor))
    async with env.serving():
        await env.setup(agents)
        await env.run(task, agents)
    (trace,) = getattr(agents, seat).traces
    await env.finalize(task, vf.Episode(env=vf.EnvInfo(id=env.config.env_id), task=trace.task, traces=[trace]))
    if trace.has_error:
        raise RuntimeError(f"verifiers recorded {trace.last_error.type}: {trace.last_error.message}")
    return trace


class _Agent(vf.Agent):
    """Verifiers' agent, whose program is the actor. `traces` are those of its runs."""

    def __init__(self, config: vf.AgentConfig, actor: Actor) -> None:
        super().__init__(config)
        self.harness = _ActorHarness(config.harness, actor)
        self.traces: list[vf.Trace] = []

    async def run(self, task: vf.Task, **options: Any) -> vf.Trace:
        return await super().run(task, on_trace=self.traces.append, **options)

    def interaction(self, task: vf.Task, **options: Any) -> Any:
        return super().interaction(task, on_trace=self.traces.append, **options)


class _ActorHarness(vf.Harness[vf.HarnessConfig]):
    """Answers in process, and writes the conversation on the trace as verifiers does for a model's answers."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    def __init__(self, config: vf.HarnessConfig, actor: Actor) -> None:
        super().__init__(config)
        self._actor = actor

    async def launch(self, ctx: vf.ModelContext, trace: vf.Trace, *args: Any) -> vf.ProgramResult:
        done = vf.ProgramResult(exit_code=0, stdout="", stderr="")
        if trace.num_turns >= trace.agent.config.max_turns:
            trace.stop("max_turns")
            return done
        data: vf.TaskData = args[-1]
        system, prompt = self.resolve_prompt(data)
        said = [vf.UserMessage(content=prompt)] if isinstance(prompt, str) else list(prompt or [])
        turns = [i for i, message in enumerate(said) if message.role == "assistant"]
        new = said[turns[-1] + 1 :] if turns else said
        reply = await self._actor.answer("\n\n".join(content_text(message.content) for message in new))
        conversation = [*([vf.SystemMessage(content=system)] if system else []), *said]
        answer = vf.AssistantMessage(content=reply)
        response = vf.Response(id=trace.id, created=0, model=ctx.model, message=answer, finish_reason="stop")
        prepare_turn(trace, conversation).commit(response)
        return done
