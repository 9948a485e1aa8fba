"""The quickstart's claims over seeds: python -m studies.quickstart [--seeds 1 2 3 4 5] [--regime few|many|housekeeping] [--jobs 2]

Equal episodes per method, but for the control with as many as the free half has. `few`: 32 rooms, visited often. `many`: 192 rooms,
visited rarely. `housekeeping`: 32 rooms, with and without merge and junk control. Prints a table with 95 % t intervals over seeds, writes
every per-seed figure to studies/results/quickstart-<regime>.json. Settings were chosen on seeds 0 and 11, which are therefore not
among them.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from complementary_rl.config_file import load_config
from complementary_rl.configs import find_config
from complementary_rl.report.summary import MethodSummary
from complementary_rl.report.tail import Tail
from studies.intervals import seed_interval
from studies.matrix import Cell, cells, results, run_all

CONFIG = "quickstart"
WITHOUT_DISTILLATION = "self_distillation.enabled=false"
VARIANTS: dict[str, dict[str, tuple[str, ...]]] = {
    "few": {
        "baseline": ("run.method=baseline", WITHOUT_DISTILLATION),
        "baseline, half the episodes": ("run.method=baseline", WITHOUT_DISTILLATION, "env.group_size=4"),
        "baseline + imitation": ("run.method=baseline", "self_distillation.source=own"),
        "static_online": ("run.method=static_online", WITHOUT_DISTILLATION),
        "complementary": ("run.method=complementary", WITHOUT_DISTILLATION),
        "complementary + self-distillation": ("run.method=complementary",),
    },
    "many": {
        "baseline": ("run.method=baseline", WITHOUT_DISTILLATION),
        "static_online": ("run.method=static_online", WITHOUT_DISTILLATION),
        "complementary": ("run.method=complementary", WITHOUT_DISTILLATION),
        "complementary + self-distillation": ("run.method=complementary",),
    },
    "housekeeping": {
        "neither": ("bank.junk_filter=false", "merge.enabled=false"),
        "junk control": ("bank.junk_filter=true", "merge.enabled=false"),
        "merge and junk control": ("bank.junk_filter=true", "merge.enabled=true", "merge.mode=clusters", "merge.similarity=0.5"),
    },
}
REGIMES = {"few": ("env.options.rooms=32",), "many": ("env.options.rooms=192",), "housekeeping": ("env.options.rooms=32",)}
MEASURES: dict[str, Callable[[MethodSummary], float | None]] = {
    "guided": lambda m: m.arms["guided"].success.mean if "guided" in m.arms else None,
    "free": lambda m: m.arms["free"].success.mean,
    "wrong room": lambda m: m.arms["shuffled"].success.mean if "shuffled" in m.arms else None,
    "actions per success": lambda m: m.headline.actions_per_success.mean,
    "actions when won": lambda m: m.headline.actions_when_won.mean,
    "entries": lambda m: float(m.bank.size) if m.bank is not None else None,
    "duplicate share": lambda m: m.bank.duplicate_share if m.bank is not None else None,
}
FIRST_FIFTH, LAST_FIFTH = "useful, first fifth", "useful, last fifth"
COMPARISONS = (
    ("complementary", "guided", "baseline", "free"),
    ("complementary", "free", "baseline", "free"),
    ("complementary", "free", "baseline, half the episodes", "free"),
    ("complementary + self-distillation", "guided", "baseline", "free"),
    ("complementary + self-distillation", "free", "baseline", "free"),
    ("complementary", "guided", "baseline + imitation", "free"),
    ("complementary", "actions per success", "baseline", "actions per success"),
    ("complementary", "guided", "static_online", "guided"),
    ("complementary", LAST_FIFTH, "static_online", LAST_FIFTH),
    ("complementary", LAST_FIFTH, "complementary", FIRST_FIFTH),
    ("merge and junk control", "guided", "neither", "guided"),
    ("merge and junk control", "entries", "neither", "entries"),
)
"""Differences that the table is there for, seed by seed: (variant, measure) − (variant, measure)."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--regime", choices=list(REGIMES), default="few")
    parser.add_argument("--steps", type=int, default=load_config(find_config(CONFIG)).run.steps)
    parser.add_argument("--variants", nargs="+", help="only these (default: all of the regime)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=Path("runs/studies/quickstart"))
    parser.add_argument("--output", type=Path, default=Path("studies/results"))
    arguments = parser.parse_args()
    common = (*REGIMES[arguments.regime], f"run.steps={arguments.steps}")
    variants = VARIANTS[arguments.regime]
    variants = {name: variants[name] for name in arguments.variants or variants}
    todo = cells(variants, common, arguments.seeds, arguments.runs / arguments.regime)
    run_all(todo, CONFIG, arguments.jobs)
    found = results(todo)
    table = _table(todo, found)
    print(_render(table))
    print("\n".join(_differences(table)))
    arguments.output.mkdir(parents=True, exist_ok=True)
    path = arguments.output / f"quickstart-{arguments.regime}.json"
    commits = sorted({summary.provenance.commit or "unknown" for by_seed in found.values() for summary in by_seed.values()})
    record = {"steps": arguments.steps, "seeds": arguments.seeds, "commits": commits, "variants": table}
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"per-seed figures: {path}")


def _table(todo: list[Cell], found: dict[str, dict[int, MethodSummary]]) -> dict[str, dict[str, list[float | None]]]:
    """variant → measure → one value per seed."""
    table: dict[str, dict[str, list[float | None]]] = {}
    for name, by_seed in found.items():
        directories = {cell.seed: cell.directory for cell in todo if cell.variant == name}
        table[name] = {measure: [read(by_seed[seed]) for seed in by_seed] for measure, read in MEASURES.items()}
        shares = [_useful_shares(directories[seed]) for seed in by_seed]
        table[name][FIRST_FIFTH] = [share[0] for share in shares]
        table[name][LAST_FIFTH] = [share[1] for share in shares]
    return table


def _useful_shares(run: Path) -> tuple[float | None, float | None]:
    """Share of useful entries among those written after a won episode, in the first and the last fifth of the steps that wrote any."""
    steps = [r["experience"] for r in Tail(run / "metrics.jsonl").read() if r["kind"] == "step" and "experience" in r]
    written = [(e.get("useful_won_entries", 0.0), e["judged_won_entries"]) for e in steps if e.get("judged_won_entries")]
    if len(written) < 10:
        return None, None
    part = len(written) // 5
    first, last = written[:part], written[-part:]
    return sum(u for u, _ in first) / sum(j for _, j in first), sum(u for u, _ in last) / sum(j for _, j in last)


def _differences(table: dict[str, dict[str, list[float | None]]]) -> list[str]:
    lines = []
    for variant, measure, other, reference in COMPARISONS:
        if variant in table and other in table:
            pairs = zip(table[variant][measure], table[other][reference], strict=True)
            found = [a - b for a, b in pairs if a is not None and b is not None]
            lines.append(f"{variant}, {measure} − {other}, {reference}: {seed_interval(found).text('+z.2f')}")
    return lines


def _render(table: dict[str, dict[str, list[float | None]]]) -> str:
    measures = list(next(iter(table.values())))
    rows = [["method", *measures]]
    for name, values in table.items():
        cells_ = [seed_interval([v for v in values[measure] if v is not None]).text() for measure in measures]
        rows.append([name, *cells_])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


if __name__ == "__main__":
    main()
