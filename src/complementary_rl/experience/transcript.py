"""What the extractor reads of a finished episode: its text. A rollout's trajectory and a line of a log both become one.

Trajectory ──── transcript_of ────┐
                                  ├──→ Transcript ──→ queue ──→ extractor
chat messages ── chat_traces ─────┘
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

from complementary_rl.readable import without_middle
from complementary_rl.types import Task, Trajectory


@dataclass(frozen=True, slots=True)
class Transcript:
    """One finished episode as text: pairs of (observation, action), and the observation that nobody answered.

    `success` and `reward` are None where the outcome is not known. `entry_ids` are the bank entries that were shown. `instructions` are
    the rules the agent was given; None stands for those of the suite.
    """

    id: str
    task: Task
    step: int
    turns: tuple[tuple[str, str], ...]
    final_observation: str
    success: bool | None
    reward: float | None
    entry_ids: tuple[int, ...] = ()
    instructions: str | None = None

    @property
    def chars(self) -> int:
        """Characters of all its turns."""
        return len(self.final_observation) + sum(len(text) for turn in self.turns for text in turn)


def transcript_of(trajectory: Trajectory) -> Transcript:
    """The text of a rollout."""
    return Transcript(
        id=trajectory.id,
        task=trajectory.task,
        step=trajectory.step,
        turns=tuple((turn.observation, turn.action) for turn in trajectory.turns),
        final_observation=trajectory.final_observation,
        success=trajectory.success,
        reward=trajectory.reward,
        entry_ids=trajectory.entry_ids,
    )


def shortened(transcript: Transcript, turns: int, chars: int | None) -> Transcript:
    """At most `turns` of its turns, the others left out of the middle, and of every text (the task's and the rules' too) at most
    `chars` characters, unless None, left out of its middle. A mark in square brackets stands where something was left out."""
    head, tail = transcript.turns[: (turns + 1) // 2], transcript.turns[len(transcript.turns) - turns // 2 :]
    left_out = len(transcript.turns) - len(head) - len(tail)
    mark = f"[{left_out} turns left out]\n" if left_out else ""
    kept = [tuple(_clipped(text, chars) for text in turn) for turn in (*head, *tail)]
    final = _clipped(transcript.final_observation, chars)
    if tail:
        kept[len(head)] = (mark + kept[len(head)][0], kept[len(head)][1])
    return replace(
        transcript,
        task=replace(transcript.task, description=_clipped(transcript.task.description, chars)),
        instructions=None if transcript.instructions is None else _clipped(transcript.instructions, chars),
        turns=tuple((observation, action) for observation, action in kept),
        final_observation=final if tail else mark + final,
    )


def transcript_to_json(transcript: Transcript) -> dict[str, Any]:
    """A JSON-able dict; `transcript_from_json` gives an equal transcript, floats bit for bit."""
    return asdict(transcript)


def transcript_from_json(values: dict[str, Any]) -> Transcript:
    """The transcript that `transcript_to_json` was given."""
    turns = tuple((observation, action) for observation, action in values["turns"])
    return Transcript(**values | {"task": Task(**values["task"]), "turns": turns, "entry_ids": tuple(values["entry_ids"])})


def _clipped(text: str, chars: int | None) -> str:
    if chars is None or len(text) <= chars:
        return text
    return without_middle(text, (chars + 1) // 2, len(text) - chars // 2, f"{len(text) - chars} characters")
