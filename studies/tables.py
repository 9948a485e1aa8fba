"""Rows of a study's tables, for the terminal and for its page."""

from collections.abc import Sequence

from complementary_rl.report.intervals import Estimate
from studies.declaration import Study
from studies.figures import reached
from studies.intervals import interquartile_interval, paired, present, seed_interval
from studies.results import RunRecord, StudyResults

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


def reach_table(study: Study, results: StudyResults, seeds: Sequence[int]) -> Rows:
    """After which share of the other variant's training episodes its final success in training is reached, seed by seed."""
    rows = [["variant", "reaches", "share of its episodes, by seed", "seeds that reach it"]]
    for reach in study.reach:
        (variant, name), (other, reference) = reach.of, reach.against
        pairs = [(first, second) for seed in seeds for first in results.of(variant, [seed]) for second in results.of(other, [seed])]
        pairs = [(first, second) for first, second in pairs if second.curves[reference]["values"]]
        shares = [_share(first, name, second, reference) for first, second in pairs]
        if shares:
            told = ", ".join("never" if share is None else f"{share:.2f}" for share in shares)
            rows.append([f"{variant}, {name}", f"{other}, {reference}", told, f"{len(present(shares))} of {len(shares)}"])
    return rows


def _share(first: RunRecord, name: str, second: RunRecord, reference: str) -> float | None:
    curve = second.curves[reference]
    tail = curve["values"][-max(1, len(curve["values"]) // 10) :]
    episodes = reached(first, name, sum(tail) / len(tail))
    return None if episodes is None else episodes / curve["episodes"][-1]


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
