"""Learning curves of a study as SVG files that a documentation page shows in light and in dark."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from complementary_rl.report.svg import Line, line_plot
from studies.declaration import Study
from studies.intervals import present, seed_interval
from studies.results import RunRecord, StudyResults

AXES = {"episodes": "training episodes", "minutes": "minutes of wall time"}
_TONES = ("tone1", "tone2", "tone3", "tone4", "tone5", "tone6", "ink", "muted")
_GRID = 60
_STYLE = """<style>
svg { --page: #fbfaf7; --ink: #22262b; --muted: #6b7178; --grid: #d8d5cd; --baseline: #6a7585;
  --tone1: #0e766e; --tone2: #c2650a; --tone3: #8b5aa8; --tone4: #3a6ea8; --tone5: #a84a5b; --tone6: #7b8a2e; font-family: sans-serif }
@media (prefers-color-scheme: dark) { svg { --page: #15181b; --ink: #e4e2dd; --muted: #969ca3; --grid: #2d3238; --baseline: #9aa6b6;
  --tone1: #4cc0b2; --tone2: #eda355; --tone3: #c49be0; --tone4: #7fb2e8; --tone5: #e88a9a; --tone6: #bccb6b } }
</style>"""


def figures(study: Study, results: StudyResults, seeds: Sequence[int]) -> dict[str, str]:
    """File name to SVG: each declared curve over episodes and over wall time, the mean over seeds of each variant; empty ones left out.

    Where a measure has the curve's name, its mean and 95 % t interval over seeds stand beside the curve's end.
    """
    found = {}
    for name in study.curves:
        for axis, label in AXES.items():
            lines = [
                _line(variant, results.of(variant, seeds), name, axis, _TONES[index % len(_TONES)])
                for index, variant in enumerate(study.variants)
            ]
            drawn = [line for line in lines if line is not None]
            if drawn:
                file = f"{study.name}-{name.replace(' ', '-')}-{axis}.svg"
                share = name != "entries"
                svg = line_plot(drawn, name=file, x_label=label, share=share, size="wide")
                start = svg.index(">") + 1
                found[file] = svg[:start] + _STYLE + svg[start:] + "\n"
    return found


def _line(variant: str, runs: Sequence[RunRecord], name: str, axis: str, colour: str) -> Line | None:
    having = [run for run in runs if run.curves.get(name, {}).get("values")]
    if not having:
        return None
    x, y = mean_curve(having, name, axis)
    final = seed_interval(present([run.measures.get(name) for run in having]))
    point = None if final.mean is None or final.lo is None or final.hi is None else (final.mean, final.lo, final.hi)
    return Line(variant, colour, x.tolist(), y.tolist(), dashed=variant.startswith("baseline"), point=point)


def mean_curve(runs: Sequence[RunRecord], name: str, axis: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(x, mean over runs) of a curve, over what all of the runs have seen."""
    curves = [(np.asarray(run.curves[name][axis]), np.asarray(run.curves[name]["values"])) for run in runs]
    grid = np.linspace(max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves), _GRID)
    return grid, np.mean([np.interp(grid, x, y) for x, y in curves], axis=0)


def reached(run: RunRecord, name: str, mark: float) -> float | None:
    """Training episodes after which a curve's mean over three points first is at `mark`; None where it never is."""
    values = np.asarray(run.curves[name]["values"])
    if len(values) < 3:
        return None
    smoothed = np.convolve(values, np.ones(3) / 3, mode="valid")
    at = np.flatnonzero(smoothed >= mark)
    return run.curves[name]["episodes"][int(at[0]) + 2] if len(at) else None
