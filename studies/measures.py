"""Figures of one finished run, by the names that declarations use."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from complementary_rl.report.summary import ArmSummary, MethodSummary, load_summary
from complementary_rl.report.tail import Tail, number

POINTS = 40
"""Values kept of a curve."""


@dataclass(frozen=True)
class FinishedRun:
    """A run with its summary."""

    directory: Path

    @cached_property
    def summary(self) -> MethodSummary:
        (method,) = load_summary(self.directory).methods.values()
        return method

    @cached_property
    def steps(self) -> list[dict[str, Any]]:
        """Records of actor steps, in order."""
        return [record for record in Tail(self.directory / "metrics.jsonl").read() if record["kind"] == "step"]

    def arm(self, name: str) -> ArmSummary:
        """Of the final evaluation; empty where it has none of that name."""
        return self.summary.arms.get(name, ArmSummary())


Measure = Callable[[FinishedRun], float | None]


def _bank(name: str) -> Measure:
    return lambda run: None if run.summary.bank is None else float(getattr(run.summary.bank, name))


def _fifth(last: bool) -> Measure:
    return lambda run: useful_shares(run.steps)[last]


MEASURES: dict[str, Measure] = {
    "guided": lambda run: run.arm("guided").success.mean,
    "free": lambda run: run.arm("free").success.mean,
    "wrong room": lambda run: run.arm("shuffled").success.mean,
    "guided reward": lambda run: run.arm("guided").reward.mean,
    "free reward": lambda run: run.arm("free").reward.mean,
    "actions per success": lambda run: run.summary.headline.actions_per_success.mean,
    "actions when won": lambda run: run.summary.headline.actions_when_won.mean,
    "entries": _bank("size"),
    "duplicate share": _bank("duplicate_share"),
    "never used": _bank("never_used_share"),
    "refused": _bank("refused"),
    "useful, first fifth": _fifth(False),
    "useful, last fifth": _fifth(True),
    "episodes": lambda run: float(run.summary.episodes),
    "wall minutes": lambda run: run.summary.wall_seconds / 60,
    "peak memory, GB": lambda run: run.summary.peak_memory_gb,
}
"""Shares and rewards are of the final evaluation. `X: part` is the measure X (`guided`, `free`) of one part of a mixture."""

CURVES: dict[str, tuple[str, ...]] = {
    "guided": ("rollout", "guided", "success"),
    "free": ("rollout", "free", "success"),
    "entries": ("experience", "bank_size"),
}
"""Where a step's record has the value. Success in training, under the temperature of training."""


def measure(run: FinishedRun, name: str) -> float | None:
    """A measure of a run; None where it has none. Raises KeyError for a name that means nothing."""
    arm, colon, part = name.partition(": ")
    if not colon:
        return MEASURES[name](run)
    if arm not in ("guided", "free"):
        raise KeyError(name)
    summary = run.summary.parts.get(part)
    return summary.arms.get(arm, ArmSummary()).success.mean if summary else None


def curve(run: FinishedRun, name: str) -> dict[str, list[float]]:
    """`{"episodes": …, "minutes": …, "values": …}` of a curve, averaged into at most `POINTS` parts; steps without a value are left out."""
    rows = [(number(r, "episodes"), number(r, "wall"), number(r, *CURVES[name])) for r in run.steps]
    kept = [(x, wall / 60, value) for x, wall, value in rows if x is not None and wall is not None and value is not None]
    parts = _parts(kept, POINTS)
    columns = {"episodes": 0, "minutes": 1, "values": 2}
    return {key: [round(sum(row[i] for row in part) / len(part), 4) for part in parts] for key, i in columns.items()}


def useful_shares(steps: Sequence[Mapping[str, Any]]) -> tuple[float | None, float | None]:
    """Share of useful entries among those written after a won episode, in the first and the last fifth of the steps that wrote any."""
    written = [r["experience"] for r in steps if number(r, "experience", "judged_won_entries")]
    if len(written) < 10:
        return None, None
    part = len(written) // 5
    first, last = (
        sum(e.get("useful_won_entries", 0.0) for e in some) / sum(e["judged_won_entries"] for e in some)
        for some in (written[:part], written[-part:])
    )
    return first, last


def _parts(rows: Sequence[Any], count: int) -> list[Sequence[Any]]:
    count = min(count, len(rows))
    return [rows[len(rows) * i // count : len(rows) * (i + 1) // count] for i in range(count)]
