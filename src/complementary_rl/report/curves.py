"""The report's figures, from the metrics of one or several runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from complementary_rl.report.rundir import RunData, episodes_of
from complementary_rl.report.summary import BASELINE
from complementary_rl.report.svg import Line, line_plot
from complementary_rl.report.tail import number

CONDITIONS = ("guided", "free")
_SMOOTH_SHARE, _LEAST_WINDOW = 25, 5
"""Curves are smoothed over one 25th of the run, but over five values at least where a run is long enough to bear it."""
_MOST_LINES = 12
"""Labels that fit beside a wide plot."""
_TONES = ("tone1", "tone2", "tone3", "tone4", "tone5", "tone6")
_OPERATIONS = {
    "bank_add": "added",
    "bank_vote": "repeated",
    "bank_update": "updated",
    "bank_merge": "merged",
    "bank_drop": "dropped",
    "bank_evict": "evicted",
}
_REFUSALS = {
    "bank_refused_boilerplate": "says nothing",
    "bank_refused_repetition": "repetition",
    "bank_refused_restates_task": "restates task",
    "bank_refused_short": "too short",
}


@dataclass(frozen=True)
class Picture:
    """A titled figure: `svg` is trusted markup made here; None when there is nothing to draw, which `note` then explains."""

    title: str
    note: str
    svg: str | None
    wide: bool = False


def training_pictures(runs: Sequence[RunData]) -> list[Picture]:
    """Success of every run and condition, and the actions a success took."""
    window = _window(runs)
    success = _training_lines(runs, "success")
    actions = _training_lines(runs, "actions_per_success")
    smoothing = f"Thick: mean over {window} steps; faint: each step." if window > 1 else "One value a step."
    dots = " Dots: the final evaluation with its 95% interval." if any(line.point for line in success) else ""
    note = f"Share of training episodes that reached the goal. {smoothing}{dots}"
    direct = "All actions over all successes, failed episodes included: what one success costs."
    return [
        _picture("Success", note, success, "success", share=True, size="wide", window=window),
        _picture("Actions per success", direct, actions, "actions", size="low", window=window),
    ]


def part_pictures(runs: Sequence[RunData]) -> list[Picture]:
    """Success by task, of runs on a mixture: one picture for each part. Empty where no run has parts."""
    window = _window(runs)
    names = dict.fromkeys(name for run in runs for name in run.parts)
    note = "Share of this task's training episodes that reached the goal."
    return [
        _picture(name, note, _training_lines(runs, "success", part=name), f"part{index}", share=True, window=window)
        for index, name in enumerate(names)
    ]


def extractor_pictures(run: RunData, prefix: str) -> list[Picture]:
    """Whether what the extractor writes gets better, and whether it is collapsing. `prefix` names the run in element ids."""
    window = _window([run])
    right = [
        _share_line(run, "of all", "tone1", "useful_entries", "judged_entries"),
        _share_line(run, "after success", "tone2", "useful_won_entries", "judged_won_entries"),
    ]
    waste = [
        _share_line(run, "unreadable", "tone3", "unparsable", "distilled"),
        _share_line(run, "repeated", "tone4", "duplicate", "duplicate", "added"),
        _share_line(run, "return", "tone5", "return", "distilled"),
    ]
    x, y = run.extractor_series("extractor/entropy", "entropy")
    credit_x, credit_y = run.extractor_series("negative_share")
    pictures = [
        _picture(
            "New entries that are right", "As the suite's own judge sees them.", right, f"{prefix}-right", share=True, window=window
        ),
        _picture(
            "Output that adds nothing",
            "Could not be read; said what the bank held already; or declined to write.",
            waste,
            f"{prefix}-waste",
            share=True,
            window=window,
        ),
        _picture(
            "Negative credit",
            "Share of each extractor update's batch that was credited below zero.",
            [Line("negative", "tone3", credit_x, credit_y)] if credit_x else [],
            f"{prefix}-credit",
            share=True,
            window=_width(len(credit_x)),
            x_label="extractor updates",
        ),
    ]
    if x:
        entropy = [Line("entropy", "tone6", x, y)]
        note = "Nats per token of the extractor's output; a fall towards zero is a collapse."
        pictures.append(_picture("Entropy", note, entropy, f"{prefix}-entropy", window=_width(len(x)), x_label="extractor updates"))
    return pictures


def bank_pictures(run: RunData, prefix: str) -> list[Picture]:
    """Growth of the bank and what happened to it. `prefix` names the run in element ids."""
    x, y = run.series("experience", "bank_size")
    size = [Line("entries", "tone1", x, y)] if x else []
    shares = [
        Line("repeats", "tone4", *run.series("experience", "bank_duplicate_share")),
        Line("never used", "tone3", *run.series("experience", "bank_never_used_share")),
    ]
    pictures = [
        _picture("Size", "Live entries.", size, f"{prefix}-size"),
        _picture("Operations", "Counted since the bank was made.", _counts(run, _OPERATIONS), f"{prefix}-operations"),
        _picture(
            "Dead weight",
            "Share of the texts taken that repeated a live entry; share of the live entries never retrieved.",
            shares,
            f"{prefix}-shares",
            share=True,
        ),
    ]
    refusals = _counts(run, _REFUSALS)
    if refusals:  # that there were none is told in a word beside the pictures
        pictures.append(_picture("Refused texts", "By reason, counted since the bank was made.", refusals, f"{prefix}-refused"))
    return pictures


def _counts(run: RunData, labels: Mapping[str, str]) -> list[Line]:
    """A line for every counter of the bank that ever moved."""
    lines = []
    for (key, label), tone in zip(labels.items(), _TONES, strict=False):
        x, y = run.series("experience", key)
        if x and max(y) > 0:
            lines.append(Line(label, tone, x, y))
    return lines


def _training_lines(runs: Sequence[RunData], metric: str, part: str | None = None) -> list[Line]:
    """A line per run and condition, of all episodes or those of one part; of many runs, only the conditions they are meant to be used in,
    and not more than fit."""
    lines = [_condition_lines(run, runs, metric, part) for run in runs]
    if sum(map(len, lines)) > _MOST_LINES:
        lines = [of_run[:1] for of_run in lines]
    return [line for of_run in lines for line in of_run][:_MOST_LINES]


def _condition_lines(run: RunData, runs: Sequence[RunData], metric: str, part: str | None) -> list[Line]:
    """Colours tell conditions apart, or, where several runs have both conditions, the runs; dashes then mark what was played free."""
    compared = [other for other in runs if not other.is_baseline]
    lines = []
    for condition in CONDITIONS:
        x, y = run.series(*(("rollout",) if part is None else ("parts", part)), condition, metric)
        if not x:
            continue
        label, colour, dashed = condition, condition, False
        if run.is_baseline and len(runs) > 1:
            label, colour, dashed = run.name, BASELINE, True
        elif len(compared) > 1:
            label, colour, dashed = f"{run.name} {condition}", _TONES[compared.index(run) % len(_TONES)], condition == "free"
        lines.append(Line(label, colour, x, y, dashed, _final(run, *(() if part is None else ("parts", part)), condition, metric)))
    return lines


def _final(run: RunData, *path: str) -> tuple[float, float, float] | None:
    if not run.evaluations:
        return None
    values = [number(run.evaluations[-1], *path, name) for name in ("mean", "lo", "hi")]
    mean, low, high = values
    return None if mean is None or low is None or high is None else (mean, low, high)


def _share_line(run: RunData, label: str, colour: str, part: str, *whole: str) -> Line:
    """`part` / Σ `whole` of the experience metrics, step by step; steps whose whole is 0 are left out. A part not named is 0."""
    x, y = [], []
    for record in run.steps:
        total = sum(number(record, "experience", name) or 0.0 for name in whole)
        if total > 0:
            x.append(episodes_of(record))
            y.append((number(record, "experience", part) or 0.0) / total)
    return Line(label, colour, x, y)


def _picture(
    title: str,
    note: str,
    lines: Sequence[Line],
    name: str,
    *,
    share: bool = False,
    size: str = "half",
    window: int = 1,
    x_label: str = "training episodes",
) -> Picture:
    drawn = [line for line in lines if line.x]
    if not drawn:
        return Picture(title, "Nothing was recorded for this.", None, size != "half")
    return Picture(title, note, line_plot(drawn, name=name, x_label=x_label, share=share, size=size, window=window), size != "half")


def _window(runs: Sequence[RunData]) -> int:
    return _width(max((len(run.steps) for run in runs), default=0))


def _width(values: int) -> int:
    return max(1, values // _SMOOTH_SHARE, min(_LEAST_WINDOW, values // 8))
