"""Eq 8, the gate: before it acts, the actor accepts, refines or rejects what it was offered. Off by default, as in the paper.

Rules:

- *accept*: the entries are shown as they are; *refine*: the actor's own text is shown instead, under the id of the first entry, which
  earns the credit; *reject*: nothing is shown, so the rollout is free, without the tool, and labelled so.
- The score s_gate (1, ½, 0) is *added* to the credit of what was shown, r̃(m) = s_gate + r(m), and never stands in for the outcome. What
  was rejected was not shown, has no outcome and earns nothing from that rollout.
- A verdict that cannot be read shows the entries as they are and gives no score.
- In the first `gate.warmup_steps` steps, and in a scope without a finished rollout, the actor is not asked.

Verdicts are sampled from the actor and not trained on.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from complementary_rl.chat.codec import ChatCodec
from complementary_rl.config import GateConfig
from complementary_rl.engines.protocol import Engine, SampleRequest, SamplingParams
from complementary_rl.experience.operations import strip_thinking
from complementary_rl.experience.success_rate import faded
from complementary_rl.prompts import PromptSet
from complementary_rl.types import Message, Task, Trajectory

Entries = tuple[tuple[int, str], ...]
"""Entries offered to a rollout, as (id, text)."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the actor said of an offer. `text` is the refined text, None unless it refined."""

    kind: Literal["accept", "refine", "reject"]
    text: str | None = None

    @property
    def score(self) -> float:
        """s_gate of Eq 8."""
        return {"accept": 1.0, "refine": 0.5, "reject": 0.0}[self.kind]


@dataclass(frozen=True, slots=True)
class Offer:
    """Entries offered to one rollout that has just seen its first observation. `id` is the rollout's, `seed` the verdict's own."""

    id: str
    task: Task
    observation: str
    entries: Entries
    seed: int


def parse_verdict(text: str) -> Verdict | None:
    """``accept``, ``refine: NEW TEXT`` or ``reject`` in any case, with a final stop or without; None for anything else."""
    word, _, rest = strip_thinking(text).partition(":")
    match word.strip().rstrip(".").lower(), rest.strip():
        case "accept", "":
            return Verdict("accept")
        case "reject", "":
            return Verdict("reject")
        case "refine", new_text if new_text:
            return Verdict("refine", new_text)
    return None


def apply_verdict(entries: Entries, verdict: Verdict | None) -> Entries:
    """What is shown after a verdict; () means that the rollout is free."""
    if verdict is None or verdict.kind == "accept":
        return entries
    if verdict.kind == "reject":
        return ()
    assert verdict.text is not None
    return ((entries[0][0], verdict.text),)


class SuccessRates:
    """The actor's running success rate per scope, over its training rollouts, guided and free."""

    def __init__(self) -> None:
        self._faded: dict[str, tuple[float, float]] = {}

    def record(self, trajectories: Iterable[Trajectory]) -> None:
        for trajectory in trajectories:
            scope = trajectory.task.scope
            self._faded[scope] = faded(*self._faded.get(scope, (0.0, 0.0)), trajectory.success)

    def rate(self, scope: str) -> float | None:
        """Successes per rollout in a scope; None before the first."""
        won, played = self._faded.get(scope, (0.0, 0.0))
        return won / played if played else None

    def state_dict(self) -> dict[str, Any]:
        return {"faded": {scope: list(counts) for scope, counts in self._faded.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._faded = {scope: (won, played) for scope, (won, played) in state["faded"].items()}


class Gate:
    """Asks the actor. `rates` are the manager's; `temperature` is that of the actor's sampling; `instructions` are the rules of a task."""

    def __init__(
        self,
        engine: Engine,
        codec: ChatCodec,
        prompts: PromptSet,
        config: GateConfig,
        rates: SuccessRates,
        *,
        temperature: float,
        instructions: Callable[[Task], str],
    ) -> None:
        self._engine = engine
        self._codec = codec
        self._prompts = prompts
        self._config = config
        self._rates = rates
        self._instructions = instructions
        self._params = SamplingParams(temperature=temperature, max_new_tokens=config.max_new_tokens)

    async def judge(self, offers: Sequence[Offer], step: int) -> list[Verdict | None]:
        """The verdict on each offer, from one batched call; None where the actor was not asked, or not understood."""
        verdicts: list[Verdict | None] = [None] * len(offers)
        if step < self._config.warmup_steps:
            return verdicts
        asked = [(i, offer, rate) for i, offer in enumerate(offers) if (rate := self._rates.rate(offer.task.scope)) is not None]
        requests = [SampleRequest(f"{offer.id}/gate", self._prompt(offer, rate), offer.seed) for _, offer, rate in asked]
        generations = await self._engine.sample(requests, self._params) if requests else []
        for (i, _, _), generation in zip(asked, generations, strict=True):
            verdicts[i] = parse_verdict(self._codec.decode(generation.token_ids))
        return verdicts

    def _prompt(self, offer: Offer, rate: float) -> tuple[int, ...]:
        content = self._prompts.render(
            "gate",
            instructions=self._instructions(offer.task),
            description=offer.task.description,
            experience=[text for _, text in offer.entries],
            rate=rate,
            observation=offer.observation,
        )
        return self._codec.open([Message("user", content)])
