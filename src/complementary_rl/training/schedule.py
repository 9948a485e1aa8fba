"""The two schedules. `lockstep`: actor step, distillation, extractor update, merge, in one fixed order. `async`: the actor's loop, the
distillation worker and the extractor's loop run freely and share nothing but the manager.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

from complementary_rl.envs.registry import parts_of
from complementary_rl.errors import InfrastructureError
from complementary_rl.rollout.runner import Fault
from complementary_rl.training.actor_loop import Group, collect, update_actor, with_outcome
from complementary_rl.training.evaluation import Evaluation, arm_estimates, evaluate
from complementary_rl.training.extractor_loop import extractor_update
from complementary_rl.training.metrics import readable_episode, rollout_metrics, write_episodes
from complementary_rl.training.session import Session
from complementary_rl.types import Trajectory

EXTRACTOR_POLL_SECONDS = 0.05
SHUTDOWN_SECONDS = 60.0

OnRecord = Callable[[dict[str, Any]], None]


class Schedule:
    """Runs a session's loops from where it stands to `config.run.steps`. `on_record` sees every metrics record."""

    def __init__(self, session: Session, on_record: OnRecord) -> None:
        self.session = session
        self.on_record = on_record
        self.times: dict[str, float] = {}
        self._extractor_loop: asyncio.Task[None] | None = None
        self._ending = False
        self.stopped = False
        """Whether `stop` was called."""

    def stop(self) -> None:
        """Have `run` return at the end of the step, for a checkpoint to go on from."""
        self.stopped = True

    async def run(self) -> None:
        """Train to the end, or to where `stop` was called. The last checkpoint is written by the caller."""
        session = self.session
        background = self._start_background() if session.config.run.schedule == "async" else []
        try:
            while session.progress.step < session.config.run.steps and not self.stopped:
                for task in background:
                    if task.done():
                        task.result()
                await self._step()
            # An update that is cancelled half-way would be trained but not counted: at a regular end it is waited for.
            self._ending = True
            if self._extractor_loop is not None:
                await asyncio.wait({self._extractor_loop}, timeout=SHUTDOWN_SECONDS)
        finally:
            for task in background:
                task.cancel()
            ended = await asyncio.gather(*background, return_exceptions=True)
        for outcome in ended:
            if isinstance(outcome, Exception):
                raise outcome
        if self.stopped:
            return
        self._check_trained()
        # Only a run that came to its end distils what is queued: one that stops early goes on from its last checkpoint.
        if background and session.manager is not None:
            await session.manager.stop(SHUTDOWN_SECONDS)

    async def _step(self) -> None:
        session, step = self.session, self.session.progress.step
        start = perf_counter()
        self.times = {}
        groups, faults = await self._timed("rollout", collect(session, step))
        self._count(groups, faults, step)
        if session.manager is not None:
            await self._experience(groups, step)
        metrics = {}
        if session.flags.train_actor and groups:
            metrics = await self._timed("update", update_actor(session, groups, step))
        if session.config.run.schedule == "lockstep":
            await self._lockstep_extractor(step)
        session.progress.step = step + 1
        self._record_step(step, groups, metrics, perf_counter() - start)
        if _due(session.config.eval.interval, session.progress.step) and session.progress.step < session.config.run.steps:
            await self.evaluate()
        if _due(session.config.checkpoint.interval, session.progress.step):
            session.checkpoint()

    async def evaluate(self) -> Evaluation:
        """Play the paired evaluation, log its "eval" record and keep its first episodes readable."""
        session, config = self.session, self.session.config
        step = session.progress.step
        result = await evaluate(
            session.runner,
            parts_of(session.suite, config.eval.split),
            config.eval,
            run_seed=config.run.seed,
            batch=config.env.groups_per_step * config.env.group_size,
            max_new_tokens=config.actor.sampling.max_new_tokens,
            manager=session.manager,
            step=step,
        )
        parts = {part: _dumped(arms, config.run.seed) for part, arms in result.parts.items()}
        self._emit(
            {
                "kind": "eval",
                "step": step,
                "episodes": session.progress.episodes,
                **_dumped(result.episodes, config.run.seed),
                "shown": result.shown_share(),
                "faults": result.faults,
                **({"parts": parts} if parts else {}),
            }
        )
        chosen = [(arm, t) for arm, episodes in result.episodes.items() for t in episodes[: config.log.episodes_per_step]]
        texts = self._texts([t for _, t in chosen])
        write_episodes(
            session.directory / "episodes" / f"eval_{step}.jsonl", [{"arm": arm, **readable_episode(t, texts)} for arm, t in chosen]
        )
        return result

    async def _experience(self, groups: list[Group], step: int) -> None:
        session = self.session
        assert session.manager is not None
        trajectories = [trajectory for group in groups for trajectory in group]
        scores = {t.id: t.gate_score for t in trajectories if t.gate_score is not None}
        await session.manager.record_rollouts(with_outcome(trajectories, session.config.actor.overlong), step, scores)
        if session.flags.distil:
            await self._timed("submit", session.manager.submit(trajectories))
            if session.config.run.schedule == "lockstep":
                await self._timed("distill", session.manager.drain())
        merge = session.config.merge
        if session.flags.distil and merge.enabled:
            due = _due(merge.interval, step + 1)
            if due or merge.redundancy is not None:
                await self._timed("merge", session.manager.merge(step, if_redundant=not due))

    async def _lockstep_extractor(self, step: int) -> None:
        if self.session.flags.train_extractor:
            await self._timed("extractor_update", self._train_extractor())

    async def _train_extractor(self) -> bool:
        session = self.session
        assert session.extractor is not None
        assert session.manager is not None
        update = session.progress.extractor_updates
        metrics = await extractor_update(session.extractor, session.manager, session.config.extractor, update=update)
        if metrics is None:
            return False
        session.progress.extractor_updates = update + 1
        self._emit({"kind": "extractor", "update": update, "step": session.progress.step, **metrics})
        return True

    def _start_background(self) -> list["asyncio.Task[None]"]:
        session = self.session
        if session.manager is None:
            return []
        tasks = [session.manager.start()] if session.flags.distil else []
        if session.flags.train_extractor:
            self._extractor_loop = asyncio.create_task(self._extractor_forever(), name="extractor loop")
            tasks.append(self._extractor_loop)
        return tasks

    async def _extractor_forever(self) -> None:
        while not self._ending:
            if not await self._train_extractor():
                await asyncio.sleep(EXTRACTOR_POLL_SECONDS)

    def _count(self, groups: list[Group], faults: list[Fault], step: int) -> None:
        session = self.session
        session.progress.episodes += sum(map(len, groups))
        session.progress.faults += len(faults)
        for fault in faults:
            self._event(step, f"episode {fault.plan.id} lost, environment {fault.kind}: {fault.message}")
        for part in session.parts:
            own = [fault for fault in faults if session.suite.part_of(fault.plan.task) == part.name]
            if (message := session.fault_budget.count(part.name, own, step)) is not None:
                self._event(step, message)

    def _check_trained(self) -> None:
        progress = self.session.progress
        if not progress.episodes:
            raise InfrastructureError(
                f"nothing was trained: all {progress.faults} episodes of the run were lost to environment faults, each with its cause in "
                f"{self.session.metrics.path}. Check the suite with `crl envs check`"
            )

    def _record_step(self, step: int, groups: list[Group], actor: dict[str, float], seconds: float) -> None:
        session = self.session
        trajectories = [trajectory for group in groups for trajectory in group]
        times = {**self.times, **{f"rollout_{name}": value for name, value in session.runner.take_times().items()}}
        record: dict[str, Any] = {
            "kind": "step",
            "step": step,
            "episodes": session.progress.episodes,
            "actor": actor,
            "rollout": rollout_metrics(trajectories),
            "faults": session.progress.faults,
        }
        if len(session.parts) > 1:
            record["parts"] = {part.name: self._part_metrics(part.name, trajectories) for part in session.parts}
        for engine in session.engines:
            for message in engine.take_events():
                self._event(step, message)
        if session.manager is not None:
            record["experience"] = session.manager.take_metrics()
            for message in session.manager.take_events():
                self._event(step, message)
        self._emit({**record, "wall": session.wall(), "time": {**times, "step": seconds}})
        kept = session.config.log.episodes_per_step
        if kept:
            chosen = trajectories[:: max(1, len(trajectories) // kept)][:kept]
            texts = self._texts(chosen)
            write_episodes(session.directory / "episodes" / f"step_{step}.jsonl", [readable_episode(t, texts) for t in chosen])

    def _part_metrics(self, part: str, trajectories: list[Trajectory]) -> dict[str, Any]:
        own = [t for t in trajectories if self.session.suite.part_of(t.task) == part]
        return {**rollout_metrics(own), "faults": self.session.fault_budget.faults(part)}

    def _texts(self, trajectories: list[Trajectory]) -> dict[int, str]:
        bank = self.session.bank
        ids = {entry for trajectory in trajectories for entry in trajectory.entry_ids}
        return {} if bank is None else {entry: bank.entry(entry).text for entry in sorted(ids)}

    async def _timed(self, name: str, work: Any) -> Any:
        start = perf_counter()
        result = await work
        self.times[name] = self.times.get(name, 0.0) + perf_counter() - start
        return result

    def _event(self, step: int, message: str) -> None:
        self._emit({"kind": "event", "step": step, "message": message})

    def _emit(self, record: dict[str, Any]) -> None:
        self.session.metrics.append(record)
        self.on_record(record)


def _dumped(episodes: Mapping[str, Sequence[Trajectory]], seed: int) -> dict[str, Any]:
    return {
        arm: {name: estimate.model_dump() for name, estimate in arm_estimates(done, seed).items()} for arm, done in episodes.items()
    }


def _due(interval: int, step: int) -> bool:
    return interval > 0 and step % interval == 0
