"""From a finished session to its summary."""

from collections.abc import Mapping, Sequence
from typing import Any

from complementary_rl.config_file import config_hash
from complementary_rl.report.provenance import Provenance, peak_memory_gb
from complementary_rl.report.summary import ArmSummary, BankSummary, MethodSummary, PartSummary, RunSummary, write_summary
from complementary_rl.report.tail import Tail
from complementary_rl.report.times import time_shares
from complementary_rl.training.evaluation import Evaluation, arm_estimates
from complementary_rl.training.session import Session
from complementary_rl.types import Condition, Trajectory


def summarise(session: Session, evaluation: Evaluation, command: str) -> RunSummary:
    """Write and return `summary.json` of a session's run."""
    config = session.config
    records = Tail(session.directory / "metrics.jsonl").read()
    bank = None
    if session.bank is not None:
        bank = BankSummary.from_counts(session.bank.counts(), _late_useful_share(records, config.run.steps))
    method = MethodSummary(
        arms=_arms(evaluation.episodes, config.run.seed),
        parts=_parts(session, evaluation, records),
        shown_share=evaluation.shown_share() if session.manager is not None else None,
        steps=session.progress.step,
        episodes=session.progress.episodes,
        extractor_updates=session.progress.extractor_updates,
        wall_seconds=session.wall(),
        time=time_shares(records),
        peak_memory_gb=peak_memory_gb(),
        bank=bank,
        provenance=Provenance.current(command, config.run.seed, config_hash(config)),
    )
    summary = RunSummary(name=config.run.name, methods={config.run.method: method})
    write_summary(session.directory, summary)
    return summary


def _arms(episodes: Mapping[str, Sequence[Trajectory]], seed: int) -> dict[str, ArmSummary]:
    return {arm: ArmSummary(**arm_estimates(done, seed)) for arm, done in episodes.items()}


def _parts(session: Session, evaluation: Evaluation, records: Sequence[Mapping[str, Any]]) -> dict[str, PartSummary]:
    """Of a mixture; a part that was not evaluated (`eval.tasks` named none of it) has no arms."""
    if len(session.parts) == 1:
        return {}
    steps = [record["parts"] for record in records if record["kind"] == "step"]
    played = {
        part.name: sum(step[part.name].get(condition, {}).get("n", 0) for step in steps for condition in Condition)
        for part in session.parts
    }
    return {
        name: PartSummary(
            arms=_arms(evaluation.parts.get(name, {}), session.config.run.seed),
            episodes=int(episodes),
            faults=session.fault_budget.faults(name),
        )
        for name, episodes in played.items()
    }


def _late_useful_share(records: Sequence[Mapping[str, Any]], steps: int) -> float | None:
    """Of the entries written in the last tenth of training, the share the suite judges right."""
    late = [
        r["experience"] for r in records if r["kind"] == "step" and "experience" in r and r["step"] >= steps - max(1, steps // 10)
    ]
    judged = sum(experience.get("judged_entries", 0.0) for experience in late)
    return sum(experience.get("useful_entries", 0.0) for experience in late) / judged if judged else None
