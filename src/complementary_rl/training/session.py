"""A session: everything one run holds, built from its configuration and closed together."""

import gc
import json
import math
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from complementary_rl import __version__
from complementary_rl.chat.codec import ChatCodec
from complementary_rl.config import Config
from complementary_rl.config_file import config_hash, dump_config
from complementary_rl.engines import make_engine
from complementary_rl.engines.factory import check_memory_of
from complementary_rl.engines.grammar import check_constrained_decoding
from complementary_rl.engines.protocol import Engine
from complementary_rl.envs.pool import EnvPool
from complementary_rl.envs.protocol import Part, Suite
from complementary_rl.envs.registry import configured_suite, parts_of, require_patience
from complementary_rl.errors import CheckpointError, UserError
from complementary_rl.experience.bank import Bank
from complementary_rl.experience.embedding import make_embedder
from complementary_rl.experience.extractor import Extractor
from complementary_rl.experience.gate import Gate
from complementary_rl.experience.manager import ExperienceManager
from complementary_rl.prompts import PromptSet
from complementary_rl.rollout.runner import RolloutRunner
from complementary_rl.training import run_lock
from complementary_rl.training.checkpoint import checkpoints, read_state, recover_replaced, write_checkpoint
from complementary_rl.training.context_check import check_actor_context, check_extractor_context
from complementary_rl.training.evaluation import check_evaluation
from complementary_rl.training.fault_budget import FaultBudget
from complementary_rl.training.given_bank import start_from
from complementary_rl.training.methods import METHODS, MethodFlags
from complementary_rl.training.metrics import MetricsLog
from complementary_rl.training.run_lock import RunLock
from complementary_rl.types import Task

MARKER, CONFIG_FILE = "run.json", "config.toml"
_BANK_FILES = ("bank.sqlite", "bank.sqlite-wal", "bank.sqlite-shm")

ENV_WORKERS = 4
"""Environment threads: environments release the GIL while they compute, and a slow one should not hold up the others."""


@dataclass
class Progress:
    """Where a run stands; all of it is in a checkpoint. `wall` counts seconds over interruptions."""

    step: int = 0
    episodes: int = 0
    extractor_updates: int = 0
    faults: int = 0
    wall: float = 0.0


@dataclass
class Session:
    """What the loops work on. `extractor` and `manager` are None for methods that have none."""

    config: Config
    directory: Path
    flags: MethodFlags
    suite: Suite
    pool: EnvPool
    actor: Engine
    runner: RolloutRunner
    metrics: MetricsLog
    lock: RunLock
    parts: list[Part]
    """The training tasks."""
    fault_budget: FaultBudget
    extractor: Engine | None = None
    bank: Bank | None = None
    manager: ExperienceManager | None = None
    gate: Gate | None = None
    progress: Progress = field(default_factory=Progress)
    _started: float = field(default_factory=time.monotonic)

    @property
    def engines(self) -> list[Engine]:
        return [self.actor] if self.extractor is None else [self.actor, self.extractor]

    def wall(self) -> float:
        """Seconds of training so far, over all interruptions."""
        return self.progress.wall + self.session_seconds()

    def session_seconds(self) -> float:
        """Seconds since this session was opened."""
        return time.monotonic() - self._started

    def checkpoint(self) -> Path:
        """Write everything needed to continue after `progress.step`."""
        state: dict[str, Any] = {
            "config_hash": config_hash(self.config),
            "progress": {**vars(self.progress), "wall": self.wall()},
            "metrics_offset": self.metrics.offset(),
            "fault_budget": self.fault_budget.state_dict(),
            "manager": None if self.manager is None else self.manager.state_dict(),
        }
        return write_checkpoint(
            self.directory / "checkpoints",
            self.progress.step,
            engines=self.engines,
            bank=self.bank,
            state=state,
            keep=self.config.checkpoint.keep,
        )

    def close(self) -> None:
        """Stop threads and close files; idempotent."""
        gc.unfreeze()
        self.pool.close()
        for engine in self.engines:
            engine.close()
        if self.manager is not None:
            self.manager.close()
        if self.bank is not None:
            self.bank.close()
        self.metrics.close()
        self.lock.release()


def open_session(config: Config, directory: Path, *, resume: bool = False) -> Session:
    """Build a session in `directory`.

    A fresh run refuses a directory that holds one; `resume` continues from the newest checkpoint, or from the start when the run died
    before its first. Raises UserError (what to do is in the message), CheckpointError when the configuration is another one.
    """
    if config.run.threads:
        import torch

        torch.set_num_threads(config.run.threads)
    lock = _claim_directory(directory, resume=resume, setting="run.name" if config.run.dir is None else "run.dir")
    try:
        recover_replaced(directory / "checkpoints")
        found = checkpoints(directory / "checkpoints")
        state = read_state(found[-1]) if found else None
        try:
            _prepare_directory(config, directory, resume=resume, state=state)
        except OSError as error:
            raise _unwritable(directory, error) from error
        if found:
            _restore_bank(found[-1], directory)
        session = _build(config, directory, lock)
        try:
            if state is not None:
                _load(session, found[-1], state)
            else:
                _begin(session)
        except BaseException:
            session.close()
            raise
        # Libraries, weights and bank are millions of objects that stay: a full collection that looks through them takes 0.1 s, in
        # which every rollout waits.
        gc.collect()
        gc.freeze()
    except BaseException:
        if not resume:
            _withdraw(directory)
        lock.release()
        raise
    return session


def open_models(config: Config) -> tuple[Engine, ChatCodec, PromptSet]:
    """The actor with its codec and prompts."""
    cluster = config.cluster if config.actor.engine == "ray" else None
    vllm = config.actor.vllm if config.actor.sampler == "vllm" else None
    actor = make_engine("actor", config.actor.model, cluster=cluster, vllm=vllm)
    return actor, ChatCodec(actor.tokenizer), PromptSet.load(config.actor.prompts)


def open_extractor(
    config: Config, instructions: Callable[[Task], str], *, actor: Engine | None = None, keep_reference: bool = False
) -> tuple[Engine, Extractor]:
    """The extractor's model, and what reads and writes with it. `instructions`: the rules of a task. It shares the base of an `actor` that
    has not computed yet, where both are adapters on the same one."""
    prompts = PromptSet.load(config.extractor.prompts)
    beside = None if actor is None else (config.actor.model, actor)
    cluster = config.cluster if config.extractor.engine == "ray" else None
    vllm = config.extractor.vllm if config.extractor.sampler == "vllm" else None
    engine = make_engine(
        "extractor", config.extractor.model, cluster=cluster, vllm=vllm, keep_reference=keep_reference, beside=beside
    )
    try:
        if config.extractor.constrained:
            check_constrained_decoding(engine.tokenizer)
        codec = ChatCodec(engine.tokenizer)
        return engine, Extractor(engine, codec, prompts, config.extractor, run_seed=config.run.seed, instructions=instructions)
    except BaseException:
        engine.close()
        raise


def _claim_directory(directory: Path, *, resume: bool, setting: str) -> RunLock:
    """Make sure that the directory is there, fits what is asked for, and is nobody else's; changes nothing that was in it. `setting` is the
    one that chose it."""
    has_run, stray = (directory / MARKER).exists(), directory / "bank.sqlite"
    if has_run and not resume:
        raise UserError(f"{directory} already holds a run; continue it with --resume, or choose another --{setting}")
    if resume and not has_run:
        raise UserError(f"{directory} holds no run to resume; leave --resume out to start one")
    if not resume and stray.exists():
        raise UserError(f"{stray} is no run's bank; to start from it give --bank.source {stray} and another --run.dir")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return RunLock(directory)
    except OSError as error:
        raise _unwritable(directory, error) from error


def _unwritable(directory: Path, error: OSError) -> UserError:
    return UserError(f"{directory} cannot be written ({error.strerror}); choose another --run.dir, or free the disk")


def _prepare_directory(config: Config, directory: Path, *, resume: bool, state: dict[str, Any] | None) -> None:
    marker = directory / MARKER
    if resume:
        expected = _run_record(directory)["config_hash"]
        if expected != config_hash(config) or (state is not None and state["config_hash"] != expected):
            raise CheckpointError(f"{directory} was made with another configuration; resume with its own config.toml, unchanged")
    if state is None:
        for name in _BANK_FILES:
            (directory / name).unlink(missing_ok=True)
        shutil.rmtree(directory / "episodes", ignore_errors=True)
    if not marker.exists():
        (directory / CONFIG_FILE).write_text(dump_config(config), encoding="utf-8")
        record = {
            "run_id": f"{config.run.name}-{config.run.seed}-{config_hash(config)}",
            "version": __version__,
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "method": config.run.method,
            "seed": config.run.seed,
            "config_hash": config_hash(config),
        }
        partial = directory / f".{MARKER}.partial"
        partial.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        partial.replace(marker)


def _run_record(directory: Path) -> dict[str, str]:
    try:
        record: dict[str, str] = json.loads((directory / MARKER).read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(
            f"{directory / MARKER} is damaged ({error}): the run cannot be identified; start another in a new --run.dir"
        ) from error
    return record


def _restore_bank(checkpoint: Path, directory: Path) -> None:
    if (checkpoint / "bank.sqlite").exists():
        Bank.restore(checkpoint / "bank.sqlite", directory / "bank.sqlite")


def _build(config: Config, directory: Path, lock: RunLock) -> Session:
    flags = METHODS[config.run.method]
    suite = configured_suite(config.env)
    require_patience(suite, config.env)
    parts = parts_of(suite, "train")
    for part in parts:
        if not part.tasks:
            raise UserError(f"env.suite: {part.name} has no training tasks; check env.options")
    check_evaluation(parts_of(suite, config.eval.split), config.eval)
    if flags.experience and (flags.extractor or config.tool.enabled):
        references = ["extractor"] if config.extractor.kl_coefficient > 0 else []
        models = {"actor": config.actor.model} if config.actor.engine == "local" else {}
        if config.extractor.engine == "local":
            models["extractor"] = config.extractor.model
        check_memory_of(models, references=references)
    actor, codec, prompts = open_models(config)
    pool = EnvPool(suite, timeout=config.env.step_timeout, workers=ENV_WORKERS)
    runner = RolloutRunner(
        suite,
        pool,
        actor,
        codec,
        prompts,
        max_turns=config.env.max_turns,
        tool_budget=config.tool.budget if config.tool.enabled else 0,
        tool_timeout=config.tool.timeout,
        earlier_thinking=config.actor.earlier_thinking,
        max_observation_tokens=config.actor.max_observation_tokens,
        constrained=config.actor.constrained,
    )
    metrics = MetricsLog(directory / "metrics.jsonl")
    fault_budget = FaultBudget([part.name for part in parts], config.env.fault_budget)
    session = Session(config, directory, flags, suite, pool, actor, runner, metrics, lock, parts, fault_budget)
    try:
        if config.actor.constrained:
            check_constrained_decoding(actor.tokenizer)
        check_actor_context(runner, parts, config.actor.sampling.max_new_tokens)
        if flags.experience:
            _add_experience(session)
    except BaseException:
        session.close()
        raise
    return session


def _add_experience(session: Session) -> None:
    config = session.config
    run_id = _run_record(session.directory)["run_id"]
    session.bank = Bank.open(
        session.directory / "bank.sqlite",
        config.bank,
        make_embedder(config.bank.embedder),
        run_id=run_id,
        retrieval=config.retrieval,
    )
    extractor = None
    if session.flags.extractor or config.tool.enabled:
        needs_reference = config.extractor.kl_coefficient > 0
        session.extractor, extractor = open_extractor(
            config, session.suite.instructions_for, actor=session.actor, keep_reference=needs_reference
        )
        check_extractor_context(extractor, session.parts)
    session.manager = ExperienceManager(
        session.bank, extractor, config, judge=session.suite.judge_entry, train_extractor=session.flags.train_extractor
    )
    if config.gate.enabled:
        session.gate = Gate(
            session.actor,
            session.runner.codec,
            session.runner.prompts,
            config.gate,
            session.manager.rates,
            temperature=config.actor.sampling.temperature,
            instructions=session.suite.instructions_for,
        )


def _begin(session: Session) -> None:
    session.metrics.truncate(0)
    for finding in session.runner.codec.check_prefix_stability():
        message = (
            f"the actor's chat template rewrites history: {finding}; here earlier turns stay as they were sampled; for thinking "
            f"actor.earlier_thinking = {session.config.actor.earlier_thinking!r} holds"
        )
        session.metrics.append({"kind": "event", "step": 0, "message": message})
    source = session.config.bank.source
    if source is not None:
        assert session.bank is not None
        start_from(source, session.bank, session.config.bank)


def _withdraw(directory: Path) -> None:
    """Leave nothing of a run that could not start, or the corrected one would be refused the directory."""
    for name in (MARKER, CONFIG_FILE, "metrics.jsonl", *_BANK_FILES, run_lock.FILE):
        (directory / name).unlink(missing_ok=True)
    if not any(directory.iterdir()):
        directory.rmdir()


def _load(session: Session, checkpoint: Path, state: dict[str, Any]) -> None:
    for engine in session.engines:
        engine.load(checkpoint / engine.name)
    if session.manager is not None:
        session.manager.load_state_dict(state["manager"])
    session.progress = Progress(**state["progress"])
    session.fault_budget.load_state_dict(state.get("fault_budget", {}))  # which older checkpoints lack
    assert math.isfinite(session.progress.wall)
    session.metrics.truncate(state["metrics_offset"])
    for path in (session.directory / "episodes").glob("step_*.jsonl"):
        if int(path.stem.removeprefix("step_")) >= session.progress.step:
            path.unlink()
