"""Where a run stands, gathered from its metrics records; what the progress views show."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from complementary_rl.report.tail import number

WINDOW = 10
"""Steps over which success is averaged: a step of 64 episodes alone jumps by ten points."""


@dataclass
class RunState:
    """`total_steps` actor updates are wanted; `record` takes every metrics record, and ignores kinds and keys it does not know."""

    label: str
    total_steps: int
    steps_done: int = 0
    episodes: int = 0
    wall: float = 0.0
    bank_size: int | None = None
    useful_share: float | None = None
    extractor_updates: int = 0
    success: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    """(step, success) by condition."""
    evaluation: dict[str, float] = field(default_factory=dict)
    """Success by arm in the newest evaluation."""
    evaluated_at: int = -1
    _first: tuple[int, float] | None = None
    _useful: list[tuple[float, float]] = field(default_factory=list)

    def record(self, record: Mapping[str, Any]) -> None:
        kind = record.get("kind")
        if kind == "step":
            self._step(record)
        elif kind == "extractor":
            self.extractor_updates = int(number(record, "update") or 0) + 1
        elif kind == "eval":
            self.evaluated_at = int(number(record, "step") or 0)
            means = {arm: number(record, arm, "success", "mean") for arm in ("guided", "free", "shuffled")}
            self.evaluation = {arm: mean for arm, mean in means.items() if mean is not None}

    def recent(self, condition: str) -> float | None:
        """Mean success of the last `WINDOW` steps."""
        values = [value for _, value in self.success.get(condition, [])[-WINDOW:]]
        return sum(values) / len(values) if values else None

    def curve(self, condition: str, width: int) -> list[float | None]:
        """Mean success in each of `width` equal parts of the whole run; None where there is none (yet)."""
        by_step = dict(self.success.get(condition, []))
        bounds = [part * self.total_steps // width for part in range(width + 1)]
        parts = [[by_step[i] for i in range(low, max(high, low + 1)) if i in by_step] for low, high in pairwise(bounds)]
        return [sum(part) / len(part) if part else None for part in parts]

    def seconds_left(self) -> float | None:
        """At the pace of the steps seen so far; None before there is one."""
        if self._first is None or self.steps_done <= self._first[0]:
            return None
        pace = (self.wall - self._first[1]) / (self.steps_done - self._first[0])
        return pace * max(0, self.total_steps - self.steps_done)

    @property
    def phase(self) -> str:
        """ "starting", "training", "evaluating" or "done"."""
        if self.steps_done == 0:
            return "starting"
        if self.steps_done < self.total_steps:
            return "training"
        return "done" if self.evaluated_at >= self.total_steps else "evaluating"

    def _step(self, record: Mapping[str, Any]) -> None:
        self.steps_done = int(number(record, "step") or 0) + 1
        self.episodes = int(number(record, "episodes") or self.episodes)
        self.wall = number(record, "wall") or self.wall
        if self._first is None:
            self._first = (self.steps_done, self.wall)
        for condition in ("guided", "free"):
            success = number(record, "rollout", condition, "success")
            if success is not None:
                self.success.setdefault(condition, []).append((self.steps_done - 1, success))
        size = number(record, "experience", "bank_size")
        self.bank_size = self.bank_size if size is None else int(size)
        judged = number(record, "experience", "judged_entries")
        if judged:
            self._useful = [*self._useful, (number(record, "experience", "useful_entries") or 0.0, judged)][-WINDOW:]
            self.useful_share = sum(useful for useful, _ in self._useful) / sum(total for _, total in self._useful)
