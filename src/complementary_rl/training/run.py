"""One run from configuration to summary: open or resume, train, evaluate, checkpoint, sum up."""

import asyncio
from pathlib import Path

from complementary_rl.config import Config
from complementary_rl.report.summary import RunSummary
from complementary_rl.training.schedule import OnRecord, Schedule
from complementary_rl.training.session import Session, open_session
from complementary_rl.training.summarise import summarise


def run_directory(config: Config) -> Path:
    """`run.dir`, or `runs/<run.name>`."""
    return config.run.dir or Path("runs") / config.run.name


def train(config: Config, *, resume: bool = False, on_record: OnRecord = lambda record: None, command: str = "") -> RunSummary:
    """Train to `run.steps`, evaluate, write `summary.json`. Blocks; see `open_session` for the errors of a bad start.

    An interrupt (KeyboardInterrupt) leaves the last checkpoint in place; `resume` continues from it.
    """
    session = open_session(config, run_directory(config), resume=resume)
    try:
        return asyncio.run(_train(session, on_record, command))
    finally:
        session.close()


async def _train(session: Session, on_record: OnRecord, command: str) -> RunSummary:
    schedule = Schedule(session, on_record)
    await schedule.run()
    session.checkpoint()
    evaluation = await schedule.evaluate()
    return summarise(session, evaluation, command)
