"""Comparisons over seeds: `python -m studies ls | run NAME | report NAME`. See docs/studies/index.md."""

import argparse
import sys
from pathlib import Path

from complementary_rl.errors import UserError
from studies.declaration import Study, chosen, load, names
from studies.results import RESULTS, StudyResults, collect, read
from studies.runs import cells, run_all
from studies.tables import difference_table, main_table, plain


def main(arguments: list[str] | None = None) -> int:
    """Parse and carry out; returns the exit status (1 when a run failed, 2 when the command makes no sense)."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.act(options)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return status


def _ls(options: argparse.Namespace) -> int:
    for name in names():
        study = load(name)
        reported = study.seeds.reported
        results = read(study, RESULTS / f"{name}.json")
        have = sum(len(results.of(variant, reported)) for variant in study.variants)
        print(
            f"{name:<28} {have:>3}/{len(study.variants) * len(reported):<3} {study.title}{' (GPU)' if study.needs == 'gpu' else ''}"
        )
    return 0


def _run(options: argparse.Namespace) -> int:
    study = load(options.name)
    seeds = options.seeds or list(study.seeds.reported)
    todo = cells(study, chosen(study, options.variants), seeds, options.runs, options.steps)
    if options.dry_run:
        for cell in todo:
            state = "finished" if cell.finished else "to run"
            print(f"{state:<9} {cell.directory}  {cell.variant}, seed {cell.seed}")
        return 0
    failures = run_all(todo, options.jobs, lambda line: print(line, flush=True))
    done = [cell for cell in todo if cell.finished]
    # Runs of another length are trials: they are shown and never mixed with the study's own.
    into = (
        RESULTS / f"{study.name}.json"
        if options.steps in (None, study.steps)
        else options.runs / f"{study.name}-{options.steps}.json"
    )
    _show(study, collect(study, done, into), seeds)
    print(f"per-seed figures: {into}")
    for failure in failures:
        print(f"FAILED {failure.cell.variant}, seed {failure.cell.seed}: {failure.cause}", file=sys.stderr)
    return 1 if failures else 0


def _report(options: argparse.Namespace) -> int:
    study = load(options.name)
    results = read(study, RESULTS / f"{study.name}.json")
    _show(study, results, options.seeds or list(study.seeds.reported))
    return 0


def _show(study: Study, results: StudyResults, seeds: list[int]) -> None:
    print(f"{study.title}: means with 95 % t intervals over seeds {', '.join(map(str, seeds))}")
    print(plain(main_table(study, results, seeds)))
    print(plain(difference_table(study, results, seeds)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m studies", description=__doc__)
    commands = parser.add_subparsers(required=True)
    listing = commands.add_parser("ls", help="declared studies, and how many of their reported runs have results")
    listing.set_defaults(act=_ls)
    run = commands.add_parser("run", help="make the runs that are missing, then print tables and write studies/results/NAME.json")
    run.add_argument("name")
    run.add_argument("--seeds", type=int, nargs="+", help="default: the declaration's reported seeds")
    run.add_argument("--variants", nargs="+", help="only these")
    run.add_argument("--steps", type=int, help="a trial of another length, whose figures stay under --runs")
    run.add_argument("--jobs", type=int, default=2, help="runs at a time, a process with one thread each (default 2)")
    run.add_argument("--runs", type=Path, default=Path("runs/studies"), help="where runs are kept, by hash of their configuration")
    run.add_argument("--dry-run", action="store_true", help="say what is there and what would run")
    run.set_defaults(act=_run)
    report = commands.add_parser("report", help="tables of the results there are")
    report.add_argument("name")
    report.add_argument("--seeds", type=int, nargs="+", help="default: the declaration's reported seeds")
    report.set_defaults(act=_report)
    return parser


if __name__ == "__main__":
    sys.exit(main())
