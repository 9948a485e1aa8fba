"""`crl train`, `crl eval`, `crl export`."""

import asyncio
import sys
from pathlib import Path

from complementary_rl.cli.errors import overrides_from, resumable, writing
from complementary_rl.cli.output import say
from complementary_rl.config import Config
from complementary_rl.config_file import dump_config, load_config
from complementary_rl.configs import find_config
from complementary_rl.errors import UserError


def run_train(name: str, arguments: list[str], *, dry_run: bool, resume: bool, quiet: bool) -> None:
    """Train, showing progress; prints where the summary is."""
    config = load_config(find_config(name), overrides_from(arguments))
    if dry_run:
        say(dump_config(config).rstrip("\n"))
        return
    from complementary_rl.report.progress import Progress
    from complementary_rl.training.run import run_directory, train

    command = " ".join(["crl", *sys.argv[1:]])
    with resumable("continue with --resume"):
        if quiet:
            train(config, resume=resume, command=command)
        else:
            with Progress(config.run.steps, config.run.name) as progress:
                train(config, resume=resume, on_record=progress.record, command=command)
    say(f"summary: {run_directory(config) / 'summary.json'}")


def run_config(run: Path) -> Config:
    """The configuration a run was made with. Raises UserError when `run` is not a run directory."""
    path = run / "config.toml"
    if not path.exists():
        raise UserError(f"{run} is not a run directory (no config.toml); give a path such as runs/quickstart/complementary")
    return load_config(path, [f"run.dir={run.as_posix()!r}"])


def run_eval(run: Path, arguments: list[str]) -> None:
    """Evaluate the newest checkpoint; prints a line per arm, and per part of a mixture, and leaves the run as it was."""
    from complementary_rl.training.evaluation import arm_estimates
    from complementary_rl.training.run import evaluate_run

    overrides = overrides_from(arguments)
    for override in overrides:
        if not override.startswith("eval."):
            raise UserError(f"--{override}: `crl eval` takes settings of [eval] only; what was trained stays as it was")
    base = run_config(run)
    config = load_config(run / "config.toml", [f"run.dir={run.as_posix()!r}", *overrides])
    result = asyncio.run(evaluate_run(base, config.eval))
    for part, arms in {"": result.episodes, **result.parts}.items():
        for arm, episodes in arms.items():
            estimates = arm_estimates(episodes, base.run.seed)
            told = [f"{name} {estimate.text('.3f')}" for name, estimate in estimates.items()]
            say(f"{arm:<9} {'  '.join(told)}  n={len(episodes)}{f'  {part}' if part else ''}")


def run_export(run: Path, output: Path) -> None:
    """Export the newest checkpoint's models, each with a model card."""
    from complementary_rl.report.card import write_card
    from complementary_rl.training.run import export_run

    config = run_config(run)
    with writing(output):
        exported = export_run(config, output)
        for path in exported:
            write_card(path, run, config)
    for path in exported:
        say(f"exported: {path}")
