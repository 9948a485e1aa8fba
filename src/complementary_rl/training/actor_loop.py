"""One step of the actor's loop.

tasks → retrieve (guided half) → rollouts ─┬→ bank statistics, credit, distillation queue   (manager)
                                           └→ advantages → GRPO (+ self-distillation) → publish
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from complementary_rl.config import Overlong
from complementary_rl.engines.protocol import LossTerm, SamplingParams, TrainingSample
from complementary_rl.objectives.advantages import group_advantages
from complementary_rl.objectives.distillation import NextTokenLoss, distillation_episodes, distillation_samples, guided_lead
from complementary_rl.objectives.grpo import GrpoLoss
from complementary_rl.objectives.samples import trajectory_samples
from complementary_rl.rollout.plan import EpisodePlan, Shown, group_seed, sampling_seed, tasks_for_step
from complementary_rl.rollout.runner import Fault
from complementary_rl.seeds import derive_seed
from complementary_rl.training.methods import guided_members
from complementary_rl.training.optim import optim_params
from complementary_rl.types import Metrics, Trajectory

if TYPE_CHECKING:
    from complementary_rl.training.session import Session

Group = list[Trajectory]


async def collect(session: "Session", step: int) -> tuple[list[Group], list[Fault]]:
    """Play the groups of `step`. Groups come in order, each with the members that survived their environments."""
    config = session.config
    plans = await _plan(session, step)
    ask = session.manager.ask if session.manager is not None and config.tool.enabled else None
    trajectories, faults = await session.runner.run(plans, _params(session), ask, session.gate)
    groups: dict[int, Group] = defaultdict(list)
    for trajectory in trajectories:
        groups[trajectory.group].append(trajectory)
    return [groups[index] for index in sorted(groups)], faults


async def update_actor(session: "Session", groups: Sequence[Group], step: int) -> Metrics:
    """Train the actor on its groups (Eq 4/5, and self-distillation where due) and publish; returns averaged metrics."""
    config = session.config
    minibatches = config.actor.updates_per_batch
    collected: dict[str, list[float]] = defaultdict(list)
    for index in range(minibatches):
        terms = _terms(session, groups[index::minibatches], step)
        trained = sum(len(term.samples) for term in terms)
        collected["trained_samples"].append(float(trained))
        if not trained:
            continue
        for name, value in (await session.actor.update(terms, optim_params(config.actor.optim))).items():
            collected[name].append(value)
    await session.actor.publish()
    return {name: sum(values) / len(values) for name, values in collected.items()}


def _terms(session: "Session", groups: Sequence[Group], step: int) -> list[LossTerm]:
    config = session.config
    loss = GrpoLoss(config.actor.ratio, config.actor.clip_epsilon)
    groups = [with_outcome(group, config.actor.overlong) for group in groups]
    terms = [
        LossTerm("grpo", _grpo_samples(groups, condition_wise=session.flags.condition_wise, overlong=config.actor.overlong), loss)
    ]
    distil = config.self_distillation
    if distil.enabled and step >= distil.warmup_steps and (step + 1) % distil.interval == 0:
        played = [episode for group in groups for episode in group]
        coefficient = distil.coefficient * (guided_lead(played) if distil.adaptive else 1.0)
        episodes = [episode for group in groups for episode in distillation_episodes(group, distil.source)]
        if episodes and coefficient:
            samples = distillation_samples(episodes, of=len(played), token_mean=config.actor.ratio != "sequence")
            terms.append(LossTerm("imitation", samples, NextTokenLoss(), coefficient))
    return terms


def with_outcome(trajectories: Sequence[Trajectory], overlong: Overlong) -> list[Trajectory]:
    """The episodes whose outcome counts: with `overlong` "mask" not those that filled the context."""
    return [trajectory for trajectory in trajectories if overlong != "mask" or not trajectory.overlong]


def _grpo_samples(groups: Sequence[Group], *, condition_wise: bool, overlong: Overlong) -> list[TrainingSample]:
    samples = []
    for group in groups:
        advantages, weights = group_advantages(
            [t.reward for t in group], [t.condition for t in group], condition_wise=condition_wise
        )
        for trajectory, advantage, weight in zip(group, advantages, weights, strict=True):
            if overlong == "zero" and trajectory.overlong:
                continue
            if advantage:  # a sample without advantage has no gradient and would cost as much as any other
                samples += trajectory_samples(trajectory, float(advantage), float(weight) / len(groups))
    return samples


async def _plan(session: "Session", step: int) -> list[EpisodePlan]:
    config, run_seed = session.config, session.config.run.seed
    parts = [part for part in session.parts if session.fault_budget.plays(part.name, step)]
    drawn = tasks_for_step(parts, config.env.groups_per_step, step, run_seed)
    tasks = [session.suite.task_at(task, step) for task in drawn]
    offers: list[list[Shown]] = [[] for _ in tasks]
    if session.manager is not None and step >= config.run.warmup_steps:
        seeds = [derive_seed(run_seed, "retrieve", step, group) for group in range(len(tasks))]
        retrieved = await session.manager.retrieve(tasks, seeds, step, training=True)
        offers = [[Shown(tuple(entries)) for entries in sets] for sets in retrieved]
    guided = guided_members(config, step)
    plans = []
    for group, (task, sets) in enumerate(zip(tasks, offers, strict=True)):
        for member in range(config.env.group_size):
            shown = sets[member % len(sets)] if sets and member < guided else Shown()
            plans.append(
                EpisodePlan(
                    id=f"s{step}-g{group}-m{member}",
                    task=task,
                    step=step,
                    group=group,
                    member=member,
                    seed=group_seed(run_seed, "train", step, group, task),
                    sampling_seed=sampling_seed(run_seed, "train", step, group, member),
                    shown=shown,
                    tool=config.tool.enabled and bool(shown.entries),
                )
            )
    return plans


def _params(session: "Session") -> SamplingParams:
    sampling = session.config.actor.sampling
    return SamplingParams(temperature=sampling.temperature, max_new_tokens=sampling.max_new_tokens)
