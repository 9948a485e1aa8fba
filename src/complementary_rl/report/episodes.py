"""A few episodes to read: with and without experience, won and lost."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from complementary_rl.readable import shortened
from complementary_rl.report.bankview import MOST_CHARACTERS
from complementary_rl.report.findings import ARM_NAMES, arm_colour
from complementary_rl.report.rundir import read_episodes
from complementary_rl.report.tail import number

_EVALUATION_ID = re.compile(r"eval\d+-(\w+)-")
_FIRST_TURNS = 8
_MOST_CHARACTERS = 1500
_FILES_READ = 12
"""Newest episode files looked through before a kind of episode is given up."""


@dataclass(frozen=True)
class EpisodeView:
    """An episode as a card: `turns` (observation, action, kind) are shown at once, `more` on demand."""

    arm: str
    colour: str
    success: bool
    where: str
    description: str
    entries: list[tuple[str, str]]
    turns: list[tuple[str, str, str]]
    more: list[tuple[str, str, str]]
    final_observation: str
    n_actions: int
    reward: float


def chosen_episodes(directory: Path, method: str) -> list[EpisodeView]:
    """The first episode of each kind (arm, won or lost) in the newest files, evaluations before training: not the best ones."""
    files = sorted((directory / "episodes").glob("*.jsonl"), key=_newest_first)[:_FILES_READ]
    found: dict[tuple[str, bool], EpisodeView] = {}
    for path in files:
        for episode in read_episodes(path):
            arm, success = arm_of(episode), bool(episode.get("success"))
            if (arm, success) not in found:
                found[arm, success] = _view(episode, arm, arm_colour(method, arm), evaluated=path.stem.startswith("eval"))
    order = {name: index for index, name in enumerate(ARM_NAMES)}
    return [found[kind] for kind in sorted(found, key=lambda kind: (order.get(kind[0], len(order)), not kind[1]))]


def arm_of(episode: dict[str, Any]) -> str:
    """`arm` of an evaluated episode (its id says it too), else the condition it was played under."""
    named = _EVALUATION_ID.match(str(episode.get("id", "")))
    return str(episode.get("arm") or (named and named.group(1)) or episode.get("condition", "free"))


def _newest_first(path: Path) -> tuple[bool, int]:
    kind, _, number = path.stem.rpartition("_")
    return kind != "eval", -int(number) if number.isdigit() else 0


def _view(episode: dict[str, Any], arm: str, colour: str, *, evaluated: bool) -> EpisodeView:
    task = episode.get("task")
    entries = episode.get("entries")
    turns = [_turn(turn) for turn in episode["turns"] if isinstance(turn, dict)]
    return EpisodeView(
        arm=ARM_NAMES.get(arm, arm),
        colour=colour,
        success=bool(episode.get("success")),
        where=f"{'evaluation after' if evaluated else 'training,'} step {episode.get('step', '?')}",
        description=shortened(task.get("description", "") if isinstance(task, dict) else "", _MOST_CHARACTERS),
        entries=[
            (str(e.get("id", "?")), shortened(e.get("text", ""), MOST_CHARACTERS)) for e in entries or () if isinstance(e, dict)
        ],
        turns=turns[:_FIRST_TURNS],
        more=turns[_FIRST_TURNS:],
        final_observation=shortened(episode.get("final_observation", ""), _MOST_CHARACTERS),
        n_actions=int(number(episode, "n_actions") or len(turns)),
        reward=number(episode, "reward") or 0.0,
    )


def _turn(turn: dict[str, Any]) -> tuple[str, str, str]:
    texts = (shortened(turn.get(name, ""), _MOST_CHARACTERS) for name in ("observation", "action"))
    observation, action = texts
    return observation, action, str(turn.get("kind", "act"))
