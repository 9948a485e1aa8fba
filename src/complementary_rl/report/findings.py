"""What a reader should know first: the tiles, the sentence and the evaluation table. Only numbers that were measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from complementary_rl.report.rundir import RunData
from complementary_rl.report.state import WINDOW
from complementary_rl.report.summary import BASELINE, ArmSummary, MethodSummary, RunSummary, arm_order
from complementary_rl.report.tail import number

ARM_NAMES = {
    "guided": "with experience",
    "free": "without experience",
    "shuffled": "with another task’s experience",
}


@dataclass(frozen=True)
class Tile:
    """A success rate, of which method under which condition; `detail` is its interval or where it comes from."""

    method: str
    condition: str
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
    """Every method and arm of the final evaluation, guided first; a method is named once."""
    return _rows({name: method.arms for name, method in summary.methods.items()})


def part_rows(summary: RunSummary) -> dict[str, list[EvaluationRow]]:
    """The same for each part of a mixture, by name; empty for single suites."""
    names = dict.fromkeys(name for method in summary.methods.values() for name in method.parts)
    return {
        name: _rows({label: method.parts[name].arms for label, method in summary.methods.items() if name in method.parts})
        for name in names
    }


def tiles(summary: RunSummary | None, runs: Sequence[RunData]) -> list[Tile]:
    """The success of every method with and without experience; of an unfinished run, what training saw last."""
    if summary is None:
        return [tile for run in runs for tile in _training_tiles(run)]
    return [
        Tile(
            method=name,
            condition=ARM_NAMES[arm],
            value=f"{success.mean:.0%}",
            detail=f"95% interval {success.lo:.0%} to {success.hi:.0%}",
            colour=arm_colour(name, arm),
        )
        for name, method in summary.methods.items()
        for arm, success in ((arm, method.arms[arm].success) for arm in ("guided", "free") if arm in method.arms)
        if success.n
    ]


def reward_differs(summary: RunSummary) -> bool:
    """Whether rewards say more than success does."""
    return any(arm.reward.mean != arm.success.mean for method in summary.methods.values() for arm in method.arms.values())


def arm_colour(method: str, arm: str) -> str:
    """The CSS colour that stands for an arm of a method, everywhere on the page."""
    return BASELINE if method == BASELINE else arm if arm in ARM_NAMES else "muted"


def sentence(summary: RunSummary | None, runs: Sequence[RunData]) -> str:
    """The result in words; `runs` are all of them, finished or not."""
    if summary is None:
        done = ", ".join(f"{run.name} after {len(run.steps):,} steps" for run in runs)
        return f"Not finished: there is no final evaluation yet ({done}). What follows is training so far."
    told = [(name, method) for name, method in summary.methods.items() if _shares(method, "")]
    if not told:
        return "Finished, and no episode was evaluated."
    same = {method.episodes for method in summary.methods.values()}
    start = f"After {same.pop():,} training episodes{' each' if len(told) > 1 else ''}" if len(same) == 1 else "After training"
    first, *others = told
    rest = "".join(f"; {name} in {_shares(method, '')}" for name, method in others)
    return f"{start}, {first[0]} reaches the goal in {_shares(first[1], ' of evaluation episodes')}{rest}."


def differences(summary: RunSummary | None) -> list[tuple[str, str, bool]]:
    """(what, difference in points with its interval, whether the interval is clear of zero)."""
    found = []
    for comparison in summary.comparisons if summary is not None else ():
        estimate = comparison.difference
        if estimate.mean is None or estimate.lo is None or estimate.hi is None:
            continue
        text = f"{_points(estimate.mean)} points [{_points(estimate.lo)}, {_points(estimate.hi)}]"
        what = f"{comparison.method}, {ARM_NAMES.get(comparison.arm, comparison.arm)}"
        found.append((what, text, estimate.lo > 0 or estimate.hi < 0))
    return found


def _points(value: float) -> str:
    return f"{100 * value:+z.0f}".replace("-", "−")


def _shares(method: MethodSummary, of: str) -> str:
    """Such as "27% of evaluation episodes", or "81% of evaluation episodes with experience and 45% without"; empty without any."""
    rates = [(arm, method.arms[arm].success.mean) for arm in ("guided", "free") if arm in method.arms]
    words = {"guided": " with experience", "free": " without"} if len(rates) > 1 else {}
    shares = [(arm, f"{rate:.0%}") for arm, rate in rates if rate is not None]
    return " and ".join(f"{share}{of if index == 0 else ''}{words.get(arm, '')}" for index, (arm, share) in enumerate(shares))


def _rows(methods: Mapping[str, Mapping[str, ArmSummary]]) -> list[EvaluationRow]:
    return [
        _row(name, arm, arms[arm], first=index == 0) for name, arms in methods.items() for index, arm in enumerate(arm_order(arms))
    ]


def _row(name: str, arm: str, result: ArmSummary, *, first: bool) -> EvaluationRow:
    success = result.success
    bar = None
    if success.mean is not None and success.lo is not None and success.hi is not None:
        bar = (100 * success.mean, 100 * success.lo, 100 * success.hi)
    return EvaluationRow(
        method=name if first else "",
        arm=ARM_NAMES.get(arm, arm),
        colour=arm_colour(name, arm),
        bar=bar,
        success="–" if bar is None else f"{bar[0]:.0f}% [{bar[1]:.0f}, {bar[2]:.0f}]",
        reward=result.reward.text(),
        actions=result.actions.text(".1f"),
        actions_per_success=result.actions_per_success.text(".1f"),
        episodes=success.n,
    )


def _training_tiles(run: RunData) -> list[Tile]:
    found = []
    for condition in ("guided", "free"):
        values = [value for record in run.steps[-WINDOW:] if (value := number(record, "rollout", condition, "success")) is not None]
        if values:
            detail = f"in training, mean of the last {len(values)} steps"
            share = f"{sum(values) / len(values):.0%}"
            found.append(Tile(run.name, ARM_NAMES[condition], share, detail, arm_colour(run.method, condition)))
    return found
