"""Rows of a study's tables, for the terminal and for its page."""

from collections.abc import Sequence

from complementary_rl.report.intervals import Estimate
from studies.declaration import Study
from studies.intervals import interquartile_interval, paired, present, seed_interval
from studies.results import StudyResults

Rows = list[list[str]]


def main_table(study: Study, results: StudyResults, seeds: Sequence[int]) -> Rows:
    """Variants by measures: means with 95 % t intervals over seeds."""
    rows = [["variant", "seeds", *study.measures]]
    for variant in study.variants:
        count = len(results.of(variant, seeds))
        values = [_told(seed_interval(present(results.values(variant, name, seeds))), _spec(name)) for name in study.measures]
        if count:
            rows.append([variant, str(count), *values])
    return rows


def interquartile_table(study: Study, results: StudyResults, seeds: Sequence[int]) -> Rows:
    """Interquartile means with bootstrap intervals, of the success measures."""
    names = [name for name in study.measures if name.partition(":")[0] in ("guided", "free")]
    shown = [variant for variant in study.variants if results.of(variant, seeds)]
    by_variant = {variant: [present(results.values(variant, name, seeds)) for name in names] for variant in shown}
    return [
        ["variant", *names],
        *([variant, *(interquartile_interval(values).text() for values in columns)] for variant, columns in by_variant.items()),
    ]


def difference_table(study: Study, results: StudyResults, seeds: Sequence[int]) -> Rows:
    """Declared comparisons, seed by seed, with 95 % t intervals and each seed's difference."""
    rows = [["difference", "mean", "by seed"]]
    for comparison in study.comparisons:
        (variant, name), (other, reference) = comparison.of, comparison.against
        found = paired(results.values(variant, name, seeds), results.values(other, reference, seeds))
        if found:
            spec = f"+z{_spec(name)}"
            by_seed = ", ".join(f"{value:{spec}}" for value in found)
            rows.append([f"{variant}, {name} − {other}, {reference}", _told(seed_interval(found), spec), by_seed])
    return rows


def plain(rows: Rows) -> str:
    """Aligned columns for a terminal."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def _told(estimate: Estimate, spec: str) -> str:
    """With its interval where there are two runs or more."""
    return f"{estimate.mean:{spec}}" if estimate.n == 1 else estimate.text(spec)


def _spec(measure: str) -> str:
    coarse = ("actions", "entries", "episodes", "wall", "refused")
    return ".1f" if measure.startswith(coarse) else ".2f"
