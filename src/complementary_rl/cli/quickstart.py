"""`crl quickstart`: the full method and a GRPO baseline side by side, one process and one torch thread each, then a report."""

import os
import subprocess
import sys
from pathlib import Path

from complementary_rl.cli.errors import writing
from complementary_rl.cli.output import say, warn
from complementary_rl.config_file import load_config
from complementary_rl.configs import find_config
from complementary_rl.errors import InfrastructureError, UserError

METHODS = ("baseline", "complementary")
CONFIG = "quickstart"


def run_quickstart(directory: Path, steps: int | None, seed: int) -> None:
    """Train both methods, then write `summary.json` and `report.html` in `directory`; prints the comparison."""
    from complementary_rl.report.html import write_report
    from complementary_rl.report.progress import watch_runs
    from complementary_rl.report.summary import combine_summaries

    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise UserError(f"{directory} is not empty; remove it or choose another --dir")
    _check_environment()
    runs = {method: directory / method for method in METHODS}
    processes = {method: _start(method, run, steps, seed) for method, run in runs.items()}
    try:
        watch_runs(runs, processes, total_steps=steps or load_config(find_config(CONFIG)).run.steps)
        for method, process in processes.items():
            if process.poll():  # ended, and not well; the other one may still be training
                log = (runs[method].parent / f"{method}.log").read_text(encoding="utf-8").strip()
                raise InfrastructureError(
                    f"the {method} run stopped (exit {process.returncode}): {log[-2000:] or 'it said nothing'}"
                )
    except KeyboardInterrupt:
        commands = "\n".join(f"  crl train {run / 'config.toml'} --resume" for run in runs.values())
        warn(f"each run can be taken to its end by itself:\n{commands}\n  crl report {directory}")
        raise
    finally:
        for process in processes.values():
            if process.poll() is None:
                process.terminate()
    summary = combine_summaries(directory, list(runs.values()))
    say(str(summary))
    say(f"summary: {directory / 'summary.json'}")
    say(f"report:  {write_report(directory)}")


def _check_environment() -> None:
    config = load_config(find_config(CONFIG))
    from complementary_rl.envs.registry import configured_suite

    configured_suite(config.env)


def _start(method: str, run: Path, steps: int | None, seed: int) -> "subprocess.Popen[bytes]":
    run.parent.mkdir(parents=True, exist_ok=True)
    arguments = ["--run.method", method, "--run.name", method, "--run.dir", run.as_posix(), "--run.seed", str(seed)]
    if steps is not None:
        arguments += ["--run.steps", str(steps)]
    # OpenMP's barriers spin: two processes with two threads each on two cores are several times slower than one thread each.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with (run.parent / f"{method}.log").open("wb") as log:
        command = [sys.executable, "-m", "complementary_rl.cli.main", "train", CONFIG, "--quiet", *arguments]
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
