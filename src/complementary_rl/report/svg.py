"""Line plots as inline SVG whose colours are CSS variables of the page, so that one picture serves light and dark."""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

COLOURS = (
    "ink", "muted", "grid", "page", "guided", "free", "baseline", "shuffled", "tone1", "tone2", "tone3", "tone4", "tone5", "tone6"
)  # fmt: skip
"""Names of CSS variables."""
_PLACEHOLDER = {name: f"#{0x0B0000 + index:06x}" for index, name in enumerate(COLOURS)}

SIZES = {"wide": (7.4, 3.1), "low": (7.4, 2.2), "half": (3.6, 2.3)}
"""Figure sizes in inches; text keeps its size on the page because a wide figure spans twice the room."""
_AXES = {"wide": (0.065, 0.14, 0.79, 0.82), "low": (0.065, 0.20, 0.79, 0.75), "half": (0.13, 0.19, 0.62, 0.76)}
_LABEL_INCHES = 0.19
"""Least distance of two line labels."""
_NAMESPACES = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" aria-hidden="true"'
_ROUND, _QUARTERS = (1, 2, 2.5, 5, 10), (0.0, 0.25, 0.5, 0.75, 1.0)
_MOST_POINTS = 400


@dataclass(frozen=True)
class Line:
    """One curve. `point` is a final measurement (mean, low, high) drawn beside the curve's end."""

    label: str
    colour: str
    x: Sequence[float]
    y: Sequence[float]
    dashed: bool = False
    point: tuple[float, float, float] | None = None


def smooth(values: Sequence[float], window: int) -> list[float]:
    """The centred mean over `window` values, fewer at the ends."""
    sums = np.concatenate([[0.0], np.cumsum(np.asarray(values, dtype=np.float64))])
    index = np.arange(len(values))
    low, high = np.maximum(0, index - window // 2), np.minimum(len(values), index + (window + 1) // 2)
    means: list[float] = ((sums[high] - sums[low]) / (high - low)).tolist()
    return means


def line_plot(
    lines: Sequence[Line],
    *,
    name: str,
    x_label: str,
    share: bool = False,
    size: str = "half",
    window: int = 1,
    from_zero: bool = True,
) -> str:
    """An ``<svg>`` of the lines, each smoothed over `window` values with the raw values faint behind, labelled at its end.

    `size` is one of `SIZES`. `share` sets a scale of 0 to 100%. `name` makes the element ids unique in the page. Lines without values
    are left out.
    """
    drawn = [line for line in lines if len(line.x)]
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "font.size": 8.5, "path.simplify": True}):
        figure = Figure(figsize=SIZES[size])
        FigureCanvasSVG(figure)
        axes = figure.add_axes(_AXES[size])
        _style(axes, x_label, share)
        ends = [_draw(axes, line, window) for line in drawn]
        _draw_points(axes, drawn)
        _limits(axes, drawn, share, from_zero)
        _label_ends(axes, drawn, ends, _LABEL_INCHES / (SIZES[size][1] * _AXES[size][3]))
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _themed(buffer.getvalue(), name)


def _draw(axes: Any, line: Line, window: int) -> float:
    """Draw one line; returns where it ends."""
    colour = _PLACEHOLDER[line.colour]
    x, y = list(line.x), smooth(line.y, window)
    style = (0, (4, 2)) if line.dashed else "solid"
    if window > 1:
        axes.plot(*_thinned(x, line.y), color=colour, linewidth=0.6, alpha=0.18, solid_joinstyle="round")
    axes.plot(*_thinned(x, y), color=colour, linewidth=1.7, linestyle=style, solid_joinstyle="round", solid_capstyle="round")
    return y[-1]


def _draw_points(axes: Any, lines: Sequence[Line]) -> None:
    """Draw the final measurements right of the curves, each at its own x so that none covers another."""
    measured = [line for line in lines if line.point is not None]
    if not measured:
        return
    first, last = min(line.x[0] for line in lines), max(line.x[-1] for line in lines)
    for index, line in enumerate(measured):
        assert line.point is not None
        mean, low, high = line.point
        colour, at = _PLACEHOLDER[line.colour], last + (0.02 + 0.012 * index) * (last - first or 1.0)
        axes.plot([at, at], [low, high], color=colour, linewidth=1.2, solid_capstyle="round")
        axes.plot([at], [mean], marker="o", markersize=4.5, color=colour, markeredgecolor=_PLACEHOLDER["page"], markeredgewidth=1)


def _style(axes: Any, x_label: str, share: bool) -> None:
    axes.set_xlabel(x_label, color=_PLACEHOLDER["muted"], labelpad=3)
    axes.tick_params(colors=_PLACEHOLDER["muted"], length=0, pad=4)
    axes.grid(axis="y", color=_PLACEHOLDER["grid"], linewidth=0.8)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(_PLACEHOLDER["grid"])
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=_ROUND))
    axes.yaxis.set_major_locator(FixedLocator(_QUARTERS) if share else MaxNLocator(4, steps=_ROUND))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}" if share else f"{value:,g}"))


def _limits(axes: Any, lines: Sequence[Line], share: bool, from_zero: bool) -> None:
    axes.margins(x=0.01)
    if share:
        axes.set_ylim(-0.01, 1.01)
    elif lines:
        values = np.concatenate([np.asarray(line.y, dtype=np.float64) for line in lines])
        low, high = min(0.0, float(values.min())) if from_zero else float(values.min()), float(values.max())
        margin = 0.08 * (high - low or abs(high) or 1.0)
        axes.set_ylim(low - (0 if from_zero and low == 0 else margin), high + margin)


def _label_ends(axes: Any, lines: Sequence[Line], ends: Sequence[float], gap: float) -> None:
    """Write each line's name at its right end, pushed apart where they would overlap."""
    low, high = axes.get_ylim()
    heights = [(end - low) / (high - low) for end in ends]
    order = sorted(range(len(lines)), key=heights.__getitem__)
    placed: list[float] = []
    for index in order:
        placed.append(max(heights[index], placed[-1] + gap if placed else 0.0))
    overshoot = max(0.0, placed[-1] - 1.0) if placed else 0.0
    for index, height in zip(order, placed, strict=True):
        line = lines[index]
        at = (1.015, height - overshoot)
        axes.text(*at, line.label, transform=axes.transAxes, color=_PLACEHOLDER[line.colour], va="center", parse_math=False)


def _thinned(x: Sequence[float], y: Sequence[float]) -> tuple[list[float], list[float]]:
    """At most `_MOST_POINTS` points: neighbours are averaged."""
    if len(x) <= _MOST_POINTS:
        return list(x), list(y)
    parts = np.array_split(np.arange(len(x)), _MOST_POINTS)
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    return [float(xs[part].mean()) for part in parts], [float(ys[part].mean()) for part in parts]


def _themed(document: str, name: str) -> str:
    svg = document[document.index("<svg") :]
    for colour, placeholder in _PLACEHOLDER.items():
        svg = svg.replace(placeholder, f"var(--{colour})")
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', rf"<svg \1 {_NAMESPACES}>", svg, count=1)
    svg = re.sub(r"\s*<defs>\s*<style.*?</style>\s*</defs>|\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # The page's own font: matplotlib names one that a reader may not have.
    return re.sub(r" font-family: [^;\"]*;", "", svg)
