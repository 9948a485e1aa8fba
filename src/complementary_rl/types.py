"""The records that pass between layers. Frozen, import nothing heavy, and hold ids rather than payloads where a store has them.

Token in, token out: what a model sampled is kept as token ids with sampling-time log-probs and is never decoded and encoded again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

TokenIds = tuple[int, ...]
Split = Literal["train", "heldout"]
Role = Literal["system", "user", "assistant", "tool"]

UNNAMED_SCOPE = "default"
"""Where experience is filed about tasks that name no scope."""


class Condition(StrEnum):
    """Whether a rollout was shown experience. Decided by what was *shown*, not by the slot it ran in."""

    GUIDED = "guided"
    FREE = "free"


@dataclass(frozen=True, slots=True)
class Task:
    """What a group of rollouts shares.

    `description` is shown to the actor and is the retrieval key; `seed` fixes the level; `scope` is the name under which the
    bank files experience about it (entries of the own scope come first).
    """

    id: str
    env: str
    description: str
    seed: int
    split: Split = "train"
    scope: str = UNNAMED_SCOPE


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message, as text. `content` may come from anywhere and is never trusted with special tokens."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Generation:
    """One sampled completion.

    `logprobs[i]` is the log-probability of `token_ids[i]` under the distribution it was really sampled from (temperature applied),
    by the weights of `version`; where a schema constrained it, under the distribution before that. `stop_reason`: "stop" (a stop token
    was sampled and is the last of `token_ids`), "length" (`max_new_tokens` reached) or "context" (the model's context was full;
    `token_ids` may be empty).

    Where a choice constrained it, ``allowed[i]`` are the tokens that `token_ids[i]` was drawn among, () where it was drawn among all; as a
    whole () where nothing did.
    """

    id: str
    model: str
    version: int
    prompt_ids: TokenIds
    token_ids: TokenIds
    logprobs: tuple[float, ...]
    stop_reason: Literal["stop", "length", "context"]
    temperature: float = 1.0
    allowed: tuple[TokenIds, ...] = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """One exchange: `new_ids` are the prompt ids this turn added (all of the prompt in turn 0), then the actor's `generation`.

    `kind` "act" went to the environment; "ask" was a search_and_ask call, whose answer is the next turn's `observation`.
    `observation` is the text the actor had just been given, `action` the decoded text of what it sampled, without its thinking.

    `thinking` is where that thinking is, as positions from the first sampled token (negative in the prompt). With `drops_thinking`
    the prompt of this turn leaves out the thinking of all turns before it; see `complementary_rl.chat.thinking`.
    """

    kind: Literal["act", "ask"]
    observation: str
    new_ids: TokenIds
    generation: Generation
    action: str
    thinking: tuple[int, int] | None = None
    drops_thinking: bool = False


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One finished episode. `reward` is the sum over its steps.

    `entry_ids` are the bank entries it was shown; `answer_ids` the extractor generations (search_and_ask) it was answered with.
    `free_prompt_ids` is the opening prompt rendered without experience (equal to ``turns[0].new_ids`` when free).
    `stop_reason`: "terminated" | "truncated" (environment), "turns" (turn limit), "context" (context full). `gate_score` is s_gate of
    Eq 8, None where the gate was not asked or not understood. `malformed_calls` are tool calls that could not be carried out,
    `cut_observations` those that the actor was shown without their middle.
    """

    id: str
    task: Task
    condition: Condition
    step: int
    group: int
    member: int
    seed: int
    entry_ids: tuple[int, ...]
    answer_ids: tuple[str, ...]
    turns: tuple[Turn, ...]
    free_prompt_ids: TokenIds
    reward: float
    success: bool
    n_actions: int
    stop_reason: str
    final_observation: str = ""
    gate_score: float | None = None
    malformed_calls: int = 0
    cut_observations: int = 0

    @property
    def overlong(self) -> bool:
        """Whether it ended because the context was full: how it would have gone is not known."""
        return self.stop_reason == "context"


@dataclass(frozen=True, slots=True)
class EntryStats:
    """Counts of one entry. `successes + failures` are the rollouts it guided whose outcome is known; `votes` are further generations
    that wrote the same text; `trained` counts updates."""

    retrieved: int = 0
    shown: int = 0
    successes: int = 0
    failures: int = 0
    votes: int = 0
    trained: int = 0
    last_retrieved_step: int = -1
    last_trained_update: int = -1


@dataclass(frozen=True, slots=True)
class Entry:
    """One piece of experience m. `key_text` is what was embedded; `generation_id` is the extractor generation that wrote it."""

    id: int
    text: str
    key_text: str
    scope: str
    created_step: int
    parents: tuple[int, ...] = ()
    generation_id: str | None = None
    stats: EntryStats = field(default_factory=EntryStats)
    retired_step: int | None = None


OperationKind = Literal["add", "update", "return", "merge", "drop", "evict"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One change of the bank as proposed by the extractor (add, update, return, merge, drop) or by the cap (evict).

    `targets` are the entries it replaces or removes; `text` the new entry's text, absent for return, drop and evict.
    """

    kind: OperationKind
    text: str | None = None
    targets: tuple[int, ...] = ()


Metrics = dict[str, float]
Info = Mapping[str, Any]
