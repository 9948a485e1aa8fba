"""The episode runner: all active episodes take their turn in one batch, so the sampler always has a full one.

plans → reset all → ┌ sample a batch ─ actions → environments (threads)  ┐ → trajectories, faults
                    └──────────── questions → search_and_ask ────────────┘
"""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from time import perf_counter

from complementary_rl.chat.codec import ChatCodec
from complementary_rl.chat.tools import Malformed
from complementary_rl.config import EarlierThinking
from complementary_rl.engines.protocol import Choice, Engine, SampleRequest, SamplingParams
from complementary_rl.envs.pool import EnvPool
from complementary_rl.envs.protocol import StepResult, Suite
from complementary_rl.errors import EnvironmentFault, UserError
from complementary_rl.experience.gate import Gate, Offer, Verdict, apply_verdict
from complementary_rl.experience.questions import Answer, AskTool, Question
from complementary_rl.prompts import PromptSet
from complementary_rl.rollout.episode import Episode
from complementary_rl.rollout.plan import EpisodePlan, Shown
from complementary_rl.rollout.tool import NO_ANSWER, AskForm
from complementary_rl.seeds import derive_seed
from complementary_rl.types import Generation, Message, Role, Task, TokenIds, Trajectory


@dataclass(frozen=True, slots=True)
class Fault:
    """An episode lost to its environment."""

    plan: EpisodePlan
    kind: str
    message: str


@dataclass(slots=True)
class RolloutTimes:
    """Seconds spent, for the wall-time breakdown."""

    sample: float = 0.0
    environment: float = 0.0
    ask: float = 0.0
    gate: float = 0.0
    tokens: float = 0.0


class RolloutRunner:
    """Plays episodes of one suite with one actor.

    `max_turns` replaces the turn limit of every task. `tool_budget` questions are answered per episode; later ones go to the
    environment as ordinary text. `tool_timeout` bounds the wait for an answer, in seconds. With `earlier_thinking` "drop" prompts leave
    out the thinking of earlier turns where the model's template does. Observations of more than `max_observation_tokens` lose their middle.
    With `constrained` the actor can say nothing but one of the actions that the environment lists.
    """

    def __init__(
        self,
        suite: Suite,
        pool: EnvPool,
        engine: Engine,
        codec: ChatCodec,
        prompts: PromptSet,
        *,
        max_turns: int | None = None,
        tool_budget: int = 0,
        tool_timeout: float = 30.0,
        earlier_thinking: EarlierThinking = "keep",
        max_observation_tokens: int | None = None,
        constrained: bool = False,
    ) -> None:
        self.suite = suite
        self.pool = pool
        self.engine = engine
        self.codec = codec
        self.prompts = prompts
        self.max_turns = max_turns
        self.tool_budget = tool_budget
        self.tool_timeout = tool_timeout
        self.max_observation_tokens = max_observation_tokens
        self.constrained = constrained
        self.times = RolloutTimes()
        self._form = AskForm.of(codec) if tool_budget else AskForm()
        roles: set[Role] = {"user", self._form.role}
        self._dropping = frozenset(role for role in roles if earlier_thinking == "drop" and codec.drops_thinking(role))

    async def run(
        self, plans: Sequence[EpisodePlan], params: SamplingParams, ask: AskTool | None = None, gate: Gate | None = None
    ) -> tuple[list[Trajectory], list[Fault]]:
        """Play all plans; returns the finished episodes in the order of `plans`, and the episodes lost to environment faults.

        With a `gate`, the actor first judges what each rollout is offered (Eq 8).
        """
        faults: list[Fault] = []
        episodes = await self._reset(plans, gate, faults)
        try:
            active = episodes
            while active:
                active = await self._turn(active, params, ask, faults)
        finally:
            self.engine.release([plan.id for plan in plans])
        lost = {fault.plan.id for fault in faults}
        finished = [episode for episode in episodes if episode.plan.id not in lost]
        self.pool.release([episode.plan.id for episode in finished])
        return [episode.trajectory() for episode in finished], faults

    def take_times(self) -> dict[str, float]:
        """Seconds by phase since the last call."""
        times, self.times = self.times, RolloutTimes()
        return asdict(times)

    def opening(self, task: Task, observation: str, experience: list[str], tool: bool) -> TokenIds:
        """Token ids of an episode's first prompt."""
        by_template = tool and self._form.tool is not None
        content = self.prompts.render(
            "actor",
            instructions=self.suite.instructions_for(task),
            description=task.description,
            experience=experience,
            tool=tool and not by_template,
            tool_call=by_template,
            observation=observation,
        )
        return self.codec.open([Message("user", content)], self._form.tool if by_template else None)

    async def _reset(self, plans: Sequence[EpisodePlan], gate: Gate | None, faults: list[Fault]) -> list[Episode]:
        start = perf_counter()
        results = await asyncio.to_thread(self.pool.reset, [(plan.id, plan.task, plan.seed) for plan in plans])
        self.times.environment += perf_counter() - start
        ready: list[tuple[EpisodePlan, str]] = []
        offered: dict[str, tuple[str, ...]] = {}
        cut: set[str] = set()
        for plan, result in zip(plans, results, strict=True):
            if isinstance(result, EnvironmentFault):
                faults.append(Fault(plan, result.kind, str(result)))
            else:
                ready.append((plan, self._shown(result[0])))
                offered[plan.id] = tuple(result[1].get("actions", ()))
                if self.constrained and not offered[plan.id]:
                    raise UserError(
                        f"actor.constrained: {self.suite.name} does not list the actions of task {plan.task.id!r}; leave it out, or have "
                        'the environment\'s reset return them as info["actions"]'
                    )
                if ready[-1][1] != result[0]:
                    cut.add(plan.id)
        verdicts = await self._verdicts(ready, gate)
        start = perf_counter()
        episodes = []
        for plan, observation in ready:
            verdict = verdicts.get(plan.id)
            shown = Shown(apply_verdict(plan.shown.entries, verdict)) if plan.shown.entries else plan.shown
            played = replace(plan, shown=shown, tool=plan.tool and bool(shown.entries))
            free_ids = self.opening(plan.task, observation, [], False)
            ids = self.opening(plan.task, observation, shown.texts, played.tool) if shown.entries else free_ids
            score = verdict.score if verdict else None
            episode = Episode(played, observation, ids, free_ids, gate_score=score, cut_observations=plan.id in cut)
            episode.offered = offered[plan.id]
            episodes.append(episode)
        self.times.tokens += perf_counter() - start
        return episodes

    async def _verdicts(self, ready: Sequence[tuple[EpisodePlan, str]], gate: Gate | None) -> dict[str, Verdict | None]:
        offers = [
            Offer(plan.id, plan.task, observation, plan.shown.entries, derive_seed(plan.sampling_seed, "gate"))
            for plan, observation in ready
            if plan.shown.entries
        ]
        if gate is None or not offers:
            return {}
        start = perf_counter()
        verdicts = await gate.judge(offers, ready[0][0].step)
        self.times.gate += perf_counter() - start
        return {offer.id: verdict for offer, verdict in zip(offers, verdicts, strict=True)}

    async def _turn(self, active: list[Episode], params: SamplingParams, ask: AskTool | None, faults: list[Fault]) -> list[Episode]:
        generations = await self._sample(active, params)
        acting: list[tuple[Episode, str]] = []
        asking: list[tuple[Episode, Question]] = []
        start = perf_counter()
        for episode, generation in zip(active, generations, strict=True):
            if generation.stop_reason == "context":
                episode.stop_reason = "context"
                continue
            thinking = self.codec.thinking.span(generation.token_ids) if self.codec.thinking is not None else None
            action = self.codec.decode(generation.token_ids[thinking[1] if thinking else 0 :]).strip()
            question = None
            if ask is not None and episode.plan.tool and episode.questions < self.tool_budget:
                question = self._form.question(action)
            episode.end_turn("act" if question is None else "ask", generation, thinking, action)
            if question is None:
                acting.append((episode, action))
            elif isinstance(question, Malformed):
                # It counts as a question, or an actor that cannot call would never have to act.
                episode.questions += 1
                episode.malformed_calls += 1
                self._reply(episode, f"not asked: {question.reason}")
            else:
                asking.append((episode, self._question(episode, question)))
        self.times.tokens += perf_counter() - start
        if asking:
            assert ask is not None
            await self._answer(asking, ask)
        if acting:
            await self._step(acting, faults)
        lost = {fault.plan.id for fault in faults}
        return [episode for episode in active if episode.stop_reason is None and episode.plan.id not in lost]

    async def _sample(self, active: list[Episode], params: SamplingParams) -> list[Generation]:
        requests = []
        for episode in active:
            turn = len(episode.turns)
            requests.append(
                SampleRequest(
                    id=f"{episode.plan.id}/{turn}",
                    prompt_ids=episode.begin_turn(),
                    seed=derive_seed(episode.plan.sampling_seed, "turn", turn),
                    session=episode.plan.id,
                    choice=self._choice(episode),
                )
            )
        start = perf_counter()
        generations = await self.engine.sample(requests, params)
        self.times.sample += perf_counter() - start
        return generations

    def _choice(self, episode: Episode) -> Choice | None:
        if not self.constrained:
            return None
        tags = self.codec.thinking.to_come if self.codec.thinking is not None else None
        return Choice(episode.offered, *(tags or (None, None)))

    def _question(self, episode: Episode, question: str) -> Question:
        episode.questions += 1
        identity = f"{episode.plan.id}/ask{episode.questions}"
        return Question(
            identity,
            episode.plan.task,
            question,
            episode.observation,
            derive_seed(episode.plan.sampling_seed, "ask", episode.questions),
        )

    async def _answer(self, asking: list[tuple[Episode, Question]], ask: AskTool) -> None:
        start = perf_counter()
        step = asking[0][0].plan.step
        answers: list[Answer | None]
        try:
            answers = await asyncio.wait_for(ask([question for _, question in asking], step), self.tool_timeout)
        except TimeoutError:
            answers = [None] * len(asking)
        for (episode, _), answer in zip(asking, answers, strict=True):
            if answer is not None:
                episode.answer_ids.append(answer.generation_id)
            self._reply(episode, NO_ANSWER if answer is None else answer.text)
        self.times.ask += perf_counter() - start

    async def _step(self, acting: list[tuple[Episode, str]], faults: list[Fault]) -> None:
        start = perf_counter()
        results = await asyncio.to_thread(self.pool.step, [(episode.plan.id, action) for episode, action in acting])
        self.times.environment += perf_counter() - start
        start = perf_counter()
        for (episode, _), result in zip(acting, results, strict=True):
            if isinstance(result, EnvironmentFault):
                faults.append(Fault(episode.plan, result.kind, str(result)))
            else:
                self._apply(episode, result)
        self.times.tokens += perf_counter() - start

    def _apply(self, episode: Episode, result: StepResult) -> None:
        observation, reward, terminated, truncated, info = result
        episode.n_actions += 1
        episode.reward += reward
        episode.observation = observation
        episode.offered = tuple(info.get("actions", ())) or episode.offered
        if terminated or truncated:
            episode.success = info["success"]
            episode.stop_reason = "terminated" if terminated else "truncated"
        elif episode.n_actions >= (self.max_turns or self.suite.max_turns_for(episode.plan.task)):
            episode.stop_reason = "turns"
        else:
            shown = self._shown(observation)
            episode.cut_observations += shown != observation
            self._hear(episode, shown)

    def _shown(self, observation: str) -> str:
        limit = self.max_observation_tokens
        return observation if limit is None else self.codec.shortened(observation, limit)

    def _reply(self, episode: Episode, answer: str) -> None:
        self._hear(episode, self.prompts.render("tool_reply", answer=answer, observation=episode.observation), self._form.role)

    def _hear(self, episode: Episode, observation: str, role: Role = "user") -> None:
        message = Message(role, observation)
        ids = self.codec.extend(episode.turns[-1].generation.token_ids, [message], self._form.tool if role == "tool" else None)
        episode.hear(observation, ids, drops_thinking=role in self._dropping)
