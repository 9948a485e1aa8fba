"""What a reader should know first: the tiles, the sentence and the evaluation table. Only numbers that were measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from complementary_rl.report.intervals import Estimate
from complementary_rl.report.rundir import RunData
from complementary_rl.report.state import WINDOW, number
from complementary_rl.report.summary import ArmSummary, MethodSummary, RunSummary

ARM_NAMES = {
    "guided": "with experience",
    "free": "without experience",
    "shuffled": "with another task's experience",
}
_ARM_ORDER = ("guided", "free", "shuffled")


@dataclass(frozen=True)
class Tile:
    """A number with what it is of; `detail` is its interval or where it comes from."""

    label: str
    value: str
    detail: str
    colour: str


@dataclass(frozen=True)
class EvaluationRow:
    """A line of the evaluation table. `bar` is the success (mean, low, high) in percent, None when nothing was evaluated."""

    method: str
    arm: str
    colour: str
    bar: tuple[float, float, float] | None
    success: str
    reward: str
    actions: str
    actions_per_success: str
    episodes: int


def evaluation_rows(summary: RunSummary) -> list[EvaluationRow]:
    """Every method and arm of the final evaluation, guided first."""
    return [_row(name, arm, method.arms[arm]) for name, method in summary.methods.items() for arm in _arms(method.arms)]


def tiles(summary: RunSummary | None, runs: Sequence[RunData]) -> list[Tile]:
    """The success of every method with and without experience; of an unfinished run, what training saw last."""
    if summary is None:
        return [tile for run in runs for tile in _training_tiles(run, several=len(runs) > 1)]
    several = len(summary.methods) > 1
    return [
        Tile(
            label=f"{name}, {ARM_NAMES[arm]}" if method.bank is not None and several else name if several else ARM_NAMES[arm],
            value=f"{success.mean:.0%}",
            detail=f"95 % interval {success.lo:.0%} to {success.hi:.0%}, {success.n:,} episodes",
            colour="baseline" if name == "baseline" else arm,
        )
        for name, method in sorted(summary.methods.items(), key=lambda item: item[0] == "baseline")
        for arm, success in ((arm, method.arms[arm].success) for arm in ("guided", "free") if arm in method.arms)
        if success.n
    ]


def sentence(summary: RunSummary | None, runs: Sequence[RunData]) -> str:
    """The result in words."""
    if summary is None:
        done = ", ".join(f"{run.name} after {len(run.steps)} steps" for run in runs)
        return f"Not finished: there is no final evaluation yet ({done}). What follows is training so far."
    parts = [part for name, method in summary.methods.items() if (part := _clause(name, method))]
    if not parts:
        return "Finished, and no episode was evaluated."
    same = {method.episodes for method in summary.methods.values()}
    trained = (
        f"After {same.pop():,} training episodes{' each' if len(parts) > 1 else ''}, " if len(same) == 1 else "After training, "
    )
    return f"{trained}{'; '.join(parts)}."


def differences(summary: RunSummary | None) -> list[tuple[str, str, bool]]:
    """(what, difference in points with its interval, whether the interval is clear of zero)."""
    found = []
    for name, estimate in (summary.comparisons if summary is not None else {}).items():
        if estimate.mean is None or estimate.lo is None or estimate.hi is None:
            continue
        text = f"{100 * estimate.mean:+.0f} points [{100 * estimate.lo:+.0f}, {100 * estimate.hi:+.0f}]"
        found.append((name, text, estimate.lo > 0 or estimate.hi < 0))
    return found


def _clause(name: str, method: MethodSummary) -> str:
    rates = {arm: method.arms[arm].success.mean for arm in ("guided", "free") if arm in method.arms}
    shares = [f"{rate:.0%}" + (f" {ARM_NAMES[arm]}" if len(rates) > 1 else "") for arm, rate in rates.items() if rate is not None]
    return f"{name} reached the goal in {' and '.join(shares)} of evaluation episodes" if shares else ""


def _arms(arms: Mapping[str, ArmSummary]) -> list[str]:
    return [arm for arm in _ARM_ORDER if arm in arms] + [arm for arm in arms if arm not in _ARM_ORDER]


def _row(name: str, arm: str, result: ArmSummary) -> EvaluationRow:
    success = result.success
    bar = None
    if success.mean is not None and success.lo is not None and success.hi is not None:
        bar = (100 * success.mean, 100 * success.lo, 100 * success.hi)
    return EvaluationRow(
        method=name,
        arm=ARM_NAMES.get(arm, arm),
        colour="baseline" if name == "baseline" else arm if arm in _ARM_ORDER else "muted",
        bar=bar,
        success="–" if bar is None else f"{bar[0]:.0f} % [{bar[1]:.0f}, {bar[2]:.0f}]",
        reward=result.reward.text(),
        actions=result.actions.text(".1f"),
        actions_per_success=result.actions_per_success.text(".1f"),
        episodes=success.n,
    )


def _training_tiles(run: RunData, *, several: bool) -> list[Tile]:
    found = []
    for condition in ("guided", "free"):
        values = [value for record in run.steps[-WINDOW:] if (value := number(record, "rollout", condition, "success")) is not None]
        if values:
            label = f"{run.name}, {ARM_NAMES[condition]}" if several else ARM_NAMES[condition]
            detail = f"in training, mean of the last {len(values)} steps"
            colour = "baseline" if run.is_baseline and several else condition
            found.append(Tile(label, f"{sum(values) / len(values):.0%}", detail, colour))
    return found
