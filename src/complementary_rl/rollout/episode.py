"""An episode in progress: its tokens so far, its turns, and what became of it."""

from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal

from complementary_rl.chat.thinking import remembered
from complementary_rl.rollout.plan import EpisodePlan
from complementary_rl.types import Condition, Generation, TokenIds, Trajectory, Turn


@dataclass(slots=True)
class Episode:
    """`context` is every token the model reads before the coming turn's `new_ids`. With `drops_thinking` that turn's prompt leaves out
    earlier thinking. `offered` are the actions that the environment lists, if it does."""

    plan: EpisodePlan
    observation: str
    new_ids: TokenIds
    free_prompt_ids: TokenIds
    drops_thinking: bool = False
    context: list[int] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    answer_ids: list[str] = field(default_factory=list)
    questions: int = 0
    malformed_calls: int = 0
    cut_observations: int = 0
    n_actions: int = 0
    reward: float = 0.0
    success: bool = False
    stop_reason: str | None = None
    gate_score: float | None = None
    offered: tuple[str, ...] = ()

    def begin_turn(self) -> TokenIds:
        """The whole prompt of the coming turn."""
        if self.drops_thinking:
            self.context = list(chain.from_iterable(map(remembered, self.turns)))
        self.context.extend(self.new_ids)
        return tuple(self.context)

    def end_turn(self, kind: Literal["act", "ask"], generation: Generation, thinking: tuple[int, int] | None, action: str) -> None:
        """Keep the turn that was begun."""
        # The prompt of a turn follows from what the earlier turns hold: keeping it again would be quadratic.
        kept = replace(generation, prompt_ids=())
        self.turns.append(Turn(kind, self.observation, self.new_ids, kept, action, thinking, self.drops_thinking))
        self.context.extend(generation.token_ids)

    def hear(self, observation: str, new_ids: TokenIds, *, drops_thinking: bool) -> None:
        """What comes before the next turn."""
        self.observation = observation
        self.new_ids = new_ids
        self.drops_thinking = drops_thinking

    def trajectory(self) -> Trajectory:
        """The finished episode."""
        assert self.stop_reason is not None
        plan = self.plan
        return Trajectory(
            id=plan.id,
            task=plan.task,
            condition=Condition.GUIDED if plan.shown.entries else Condition.FREE,
            step=plan.step,
            group=plan.group,
            member=plan.member,
            seed=plan.seed,
            entry_ids=plan.shown.ids,
            answer_ids=tuple(self.answer_ids),
            turns=tuple(self.turns),
            free_prompt_ids=self.free_prompt_ids,
            reward=self.reward,
            success=self.success,
            n_actions=self.n_actions,
            stop_reason=self.stop_reason,
            final_observation=self.observation,
            gate_score=self.gate_score,
            malformed_calls=self.malformed_calls,
            cut_observations=self.cut_observations,
        )
