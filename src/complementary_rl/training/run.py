"""One run from configuration to summary: open or resume, train, evaluate, checkpoint, sum up."""

import asyncio
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from complementary_rl.config import Config, EvalConfig
from complementary_rl.engines import make_engine
from complementary_rl.errors import CheckpointError
from complementary_rl.report.summary import RunSummary
from complementary_rl.report.tensorboard import TensorBoardWriter, check_tensorboard
from complementary_rl.training.checkpoint import checkpoints
from complementary_rl.training.evaluation import Evaluation
from complementary_rl.training.schedule import OnRecord, Schedule
from complementary_rl.training.session import Session, open_session
from complementary_rl.training.summarise import summarise


def run_directory(config: Config) -> Path:
    """`run.dir`, or `runs/<run.name>`."""
    return config.run.dir or Path("runs") / config.run.name


def train(config: Config, *, resume: bool = False, on_record: OnRecord = lambda record: None, command: str = "") -> RunSummary:
    """Train to `run.steps`, evaluate, write `summary.json`. Blocks; see `open_session` for the errors of a bad start.

    An interrupt (KeyboardInterrupt) leaves the last checkpoint in place; `resume` continues from it. SIGTERM, by which a scheduler takes
    its machine back, becomes one at the end of the step, behind a checkpoint; a second SIGTERM is as final as it usually is.
    """
    if config.log.tensorboard:
        check_tensorboard()
    session = open_session(config, run_directory(config), resume=resume)
    try:
        with _recorders(session, on_record) as record:
            summary = asyncio.run(_train(session, record, command))
    finally:
        session.close()
    if summary is None:
        raise KeyboardInterrupt
    return summary


@contextmanager
def _recorders(session: Session, on_record: OnRecord) -> Iterator[OnRecord]:
    """`on_record`, and TensorBoard beside it where it is wanted."""
    if not session.config.log.tensorboard:
        yield on_record
        return
    with TensorBoardWriter(session.directory / "tensorboard", session.progress.step) as writer:

        def both(record: dict[str, Any]) -> None:
            writer.record(record)
            on_record(record)

        yield both


async def _train(session: Session, on_record: OnRecord, command: str) -> RunSummary | None:
    """None when the run was told to stop."""
    schedule = Schedule(session, on_record)
    with _stopped_by_sigterm(schedule):
        await schedule.run()
    session.checkpoint()
    if schedule.stopped:
        return None
    evaluation = await schedule.evaluate()
    return summarise(session, evaluation, command)


@contextmanager
def _stopped_by_sigterm(schedule: Schedule) -> Iterator[None]:
    """The first SIGTERM stops the schedule at the end of its step; where signals are somebody else's, nothing does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop, usual = asyncio.get_running_loop(), signal.getsignal(signal.SIGTERM)

    def stop() -> None:
        schedule.stop()
        restore()

    def restore() -> None:
        loop.remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGTERM, usual)

    loop.add_signal_handler(signal.SIGTERM, stop)
    try:
        yield
    finally:
        restore()


async def evaluate_run(config: Config, evaluation: EvalConfig) -> Evaluation:
    """Evaluate the newest checkpoint of `run.dir` with other [eval] settings. The run stays as it was: models and bank are copied to a
    temporary directory first. Raises CheckpointError when there is no checkpoint."""
    directory = run_directory(config)
    newest = _newest_checkpoint(directory)
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / "run"
        shutil.copytree(newest, copy / "checkpoints" / newest.name)
        shutil.copy(directory / "run.json", copy / "run.json")
        session = open_session(config, copy, resume=True)
        try:
            session.config = config.model_copy(update={"eval": evaluation})
            return await Schedule(session, lambda record: None).evaluate()
        finally:
            session.close()


def export_run(config: Config, output: Path) -> list[Path]:
    """Write the models of the newest checkpoint, whatever engines trained them, as Hugging Face folders under `output`; returns the
    folders."""
    newest = _newest_checkpoint(run_directory(config))
    models = {"actor": config.actor.model, "extractor": config.extractor.model}
    exported = []
    for name, model in models.items():
        if not (newest / name).exists():
            continue
        engine = make_engine(name, model)
        try:
            engine.load(newest / name)
            engine.export(output / name)
        finally:
            engine.close()
        exported.append(output / name)
    return exported


def _newest_checkpoint(directory: Path) -> Path:
    found = checkpoints(directory / "checkpoints")
    if not found:
        raise CheckpointError(f"{directory} has no checkpoint yet; train it further, or set checkpoint.interval")
    return found[-1]
