"""Paired evaluation: the same tasks, initial states and sampling seeds with and without experience.

The bank is only read: retrieval with ``training=False`` moves no counter, nothing is distilled, nothing is credited.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from complementary_rl.config import EvalConfig
from complementary_rl.engines.protocol import SamplingParams
from complementary_rl.envs.protocol import Part
from complementary_rl.errors import UserError
from complementary_rl.experience.manager import ExperienceManager
from complementary_rl.report.intervals import Estimate, bootstrap_interval, ratio_interval
from complementary_rl.rollout.plan import EpisodePlan, Shown, group_seed, sampling_seed
from complementary_rl.rollout.runner import RolloutRunner
from complementary_rl.seeds import derive_seed
from complementary_rl.types import Task, Trajectory

FREE, GUIDED, SHUFFLED = "free", "guided", "shuffled"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Episodes by arm ("free", "guided", "shuffled"); lists of an evaluation are paired by position. `faults` were lost.

    `parts` holds the episodes again, by part and arm, where the suite has several parts.
    """

    episodes: dict[str, list[Trajectory]]
    faults: int
    parts: dict[str, dict[str, list[Trajectory]]] = field(default_factory=dict)

    def shown_share(self) -> float:
        """Share of guided episodes for which the bank had something to show."""
        guided = self.episodes.get(GUIDED, [])
        return sum(bool(t.entry_ids) for t in guided) / max(1, len(guided))


def arm_estimates(episodes: Sequence[Trajectory], seed: int) -> dict[str, Estimate]:
    """What `ArmSummary` tells of one arm, each with its bootstrap interval."""
    success = [float(t.success) for t in episodes]
    actions = [float(t.n_actions) for t in episodes]
    columns = {
        "success": success,
        "reward": [t.reward for t in episodes],
        "actions": actions,
        "actions_when_won": [float(t.n_actions) for t in episodes if t.success],
    }
    estimates = {name: bootstrap_interval(values, seed) for name, values in columns.items()}
    return estimates | {"actions_per_success": ratio_interval(actions, success, seed)}


def select_tasks(parts: Sequence[Part], wanted: Sequence[str]) -> list[Part]:
    """The named tasks, in the order of their names, of the parts that have any; or all. Raises UserError for names that are not of the
    split."""
    if not wanted:
        return list(parts)
    by_id = {task.id: task for part in parts for task in part.tasks}
    unknown = [name for name in wanted if name not in by_id]
    if unknown:
        raise UserError(f"eval.tasks: unknown task {unknown[0]!r}; the split has {len(by_id)} tasks, such as {next(iter(by_id))!r}")
    owned = [(part, {task.id for task in part.tasks}) for part in parts]
    chosen = [replace(part, tasks=[by_id[name] for name in wanted if name in ids]) for part, ids in owned]
    return [part for part in chosen if part.tasks]


def check_evaluation(parts: Sequence[Part], config: EvalConfig) -> None:
    """Raise UserError for an evaluation that cannot be played on the tasks of its split, before hours are spent on training."""
    chosen = select_tasks(parts, config.tasks)
    several = len(chosen) > 1
    for part in chosen:
        which = f"part {part.name!r}" if several else "the suite"
        if not part.tasks:
            other = ", or name the tasks of the other parts in eval.tasks" if several else ""
            raise UserError(f"eval.split: {which} has no {config.split} tasks; set eval.split to the other one, or add some{other}")
        if config.shuffled_control and len(part.tasks) < 2:
            of = f" of {which}" if several else ""
            raise UserError(f"eval.shuffled_control needs at least two tasks{of}: it shows each the experience of another")
    if config.episodes < len(chosen):
        raise UserError(f"eval.episodes is {config.episodes}; each of the {len(chosen)} parts needs one at least")


async def evaluate(
    runner: RolloutRunner,
    parts: Sequence[Part],
    config: EvalConfig,
    *,
    run_seed: int,
    batch: int,
    max_new_tokens: int,
    manager: ExperienceManager | None,
    step: int,
) -> Evaluation:
    """Play `config.episodes` episodes per arm, `batch` at a time, dealt evenly to the parts whatever their weights. Without a manager only
    the free arm is played.

    Guided means *experience offered*: a task for which the bank has nothing is played without, as a user would meet it.
    The shuffled arm shows each task what the bank offers for another one of its part, the control for "any hint helps".
    """
    params = SamplingParams(temperature=config.temperature, top_p=config.top_p, max_new_tokens=max_new_tokens)
    check_evaluation(parts, config)
    chosen = select_tasks(parts, config.tasks)
    turns = [(chosen[i % len(chosen)].tasks, i // len(chosen)) for i in range(config.episodes)]
    played = [tasks[turn % len(tasks)] for tasks, turn in turns]
    shown: dict[str, list[Shown]] = {FREE: [Shown()] * len(played)}
    if manager is not None:
        shown[GUIDED] = await _best_entries(manager, played, run_seed, step)
        if config.shuffled_control:
            others = [tasks[(turn + 1 + turn // len(tasks) % (len(tasks) - 1)) % len(tasks)] for tasks, turn in turns]
            shown[SHUFFLED] = await _best_entries(manager, others, run_seed, step)
    episodes: dict[str, list[Trajectory]] = {}
    faulty: list[int] = []
    for arm, offers in shown.items():
        episodes[arm] = []
        for start in range(0, len(played), batch):
            plans = [
                EpisodePlan(
                    id=f"eval{step}-{arm}-{i}",
                    task=played[i],
                    step=step,
                    group=i,
                    member=0,
                    seed=group_seed(run_seed, "eval", 0, i, played[i]),
                    sampling_seed=sampling_seed(run_seed, "eval", 0, i, 0),
                    shown=offers[i],
                )
                for i in range(start, min(start + batch, len(played)))
            ]
            done, lost = await runner.run(plans, params)
            episodes[arm] += done
            faulty += [fault.plan.group for fault in lost]
    # An episode lost in one arm is left out of all: the arms stay paired.
    complete = {arm: [t for t in done if t.group not in faulty] for arm, done in episodes.items()}
    return Evaluation(complete, len(faulty), _by_part(complete, chosen) if len(parts) > 1 else {})


def _by_part(episodes: Mapping[str, Sequence[Trajectory]], parts: Sequence[Part]) -> dict[str, dict[str, list[Trajectory]]]:
    ids = {part.name: {task.id for task in part.tasks} for part in parts}
    return {name: {arm: [t for t in done if t.task.id in own] for arm, done in episodes.items()} for name, own in ids.items()}


async def _best_entries(manager: ExperienceManager, tasks: Sequence[Task], run_seed: int, step: int) -> list[Shown]:
    unique = {task.id: task for task in tasks}
    seeds = [derive_seed(run_seed, "eval", "retrieve", name) for name in unique]
    offers = await manager.retrieve(list(unique.values()), seeds, step, training=False)
    best = {name: Shown(tuple(sets[0])) if sets else Shown() for name, sets in zip(unique, offers, strict=True)}
    return [best[task.id] for task in tasks]
