"""From a finished session to its summary."""

import json
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from complementary_rl.config_file import config_hash
from complementary_rl.report.summary import MethodSummary, RunSummary
from complementary_rl.statistics import Estimate, bootstrap_interval
from complementary_rl.training.evaluation import FREE, GUIDED, Evaluation, arm_estimates
from complementary_rl.training.session import Session

GIT_SECONDS = 5.0
FIFTH = 5


def summarise(session: Session, evaluation: Evaluation, command: str) -> RunSummary:
    """Write and return `summary.json` of a session's run."""
    config = session.config
    arms = {
        arm: {name: Estimate.model_validate(value) for name, value in arm_estimates(episodes, config.run.seed).items()}
        for arm, episodes in evaluation.episodes.items()
    }
    best = arms.get(GUIDED, arms[FREE])
    bank = {} if session.bank is None else session.bank.counts()
    steps = [r for r in _records(session.directory / "metrics.jsonl") if r["kind"] == "step"]
    method = MethodSummary(
        success_guided=arms[GUIDED]["success"] if GUIDED in arms else None,
        success_free=arms[FREE]["success"],
        reward=best["reward"],
        actions=best["actions"],
        actions_per_success=best["actions_per_success"],
        arms=arms,
        episodes=session.progress.episodes,
        wall_seconds=session.wall(),
        compute_share=_compute_share(session),
        bank=bank,
        useful_share=_useful_share(steps, config.run.seed),
        seed=config.run.seed,
        config_hash=config_hash(config),
        commit=_commit(),
    )
    summary = RunSummary(
        command=command,
        machine=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        wall_seconds=session.wall(),
        episodes=session.progress.episodes,
        bank=bank,
        methods={config.run.method: method},
    )
    summary.write(session.directory)
    return summary


def _compute_share(session: Session) -> float:
    seconds = sum(sum(engine.compute_seconds.values()) for engine in session.engines)
    return seconds / max(session.session_seconds(), 1e-9)


def _useful_share(steps: Sequence[dict[str, Any]], seed: int) -> dict[str, float]:
    shares = [r["experience"]["useful_share_won_entries"] for r in steps if "useful_share_won_entries" in r.get("experience", {})]
    if len(shares) < 2 * FIFTH:
        return {}
    part = len(shares) // FIFTH
    return {"first": bootstrap_interval(shares[:part], seed).mean, "last": bootstrap_interval(shares[-part:], seed).mean}


def _records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _commit() -> str:
    """The commit of the source this runs from, "" for an installed release."""
    try:
        done = subprocess.run(
            ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"],
            capture_output=True,
            text=True,
            timeout=GIT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
