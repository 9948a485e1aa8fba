"""Sections of the run as a whole: what is played, evaluated and kept."""

from pathlib import Path
from typing import Literal

from pydantic import Field, JsonValue

from complementary_rl.config.section import Section

Method = Literal["complementary", "baseline", "static_online", "offline", "exp_only", "all_guided", "pooled"]


class RunConfig(Section):
    """What is run, for how long, and in which order."""

    name: str = "run"
    """Name of the run; its directory is `runs/<name>` unless `dir` is set."""
    dir: Path | None = None
    """Directory of the run; default `runs/<name>`."""
    seed: int = 0
    """Every random draw of the run derives from this seed and from what the draw is for."""
    method: Method = "complementary"
    """`complementary` (the full method), `baseline` (GRPO, no experience), `static_online` (extractor frozen), `offline` (bank given
    and frozen), `exp_only` (actor frozen), `all_guided` (no free half), `pooled` (both halves share one baseline)."""
    steps: int = Field(300, ge=1)
    """Actor updates."""
    warmup_steps: int = Field(5, ge=0)
    """Steps at the start in which the bank fills and nothing is retrieved."""
    schedule: Literal["lockstep", "async"] = "async"
    """`lockstep`: one deterministic order, resumable bit for bit. `async`: actor and extractor loops run freely."""
    threads: int = Field(0, ge=0)
    """Torch threads of this process; 0 leaves torch's default."""


class EnvConfig(Section):
    """Which tasks are played and how groups are formed."""

    suite: str = "minihack/dark-rooms"
    """Registered suite name, or `module:attribute` of your own `Suite` subclass (see `crl envs ls`)."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Keyword arguments of the suite, such as `rooms = 16`: texts, finite numbers, booleans, lists and tables of these. Those
    of `mixture` are in docs/environments.md."""
    groups_per_step: int = Field(8, ge=1)
    """Groups (tasks) per actor step; a mixture deals them to its parts by weight."""
    group_size: int = Field(8, ge=1)
    """K, rollouts per group; even when the group is split in a guided and a free half."""
    guided_share: float = Field(0.5, gt=0, lt=1)
    """Share of a group's rollouts that is offered experience, where the method splits groups; ½ is the paper's."""
    guided_share_end: float | None = Field(None, ge=0, le=1)
    """Share that the last step has, reached on a straight line from `guided_share`; None keeps it."""
    max_turns: int | None = Field(None, ge=1)
    """Turn limit; None takes that of each task."""
    step_timeout: float = Field(30.0, gt=0)
    """Seconds one reset or step may take before its episode is given up."""
    fault_budget: int = Field(64, ge=0)
    """Episodes that may be lost to environment faults in a run before it stops; in a mixture, of each part before it sits out."""


class EvalConfig(Section):
    """Paired evaluation: the same tasks and seeds with and without experience; the bank is read-only."""

    interval: int = Field(0, ge=0)
    """Actor updates between evaluations; 0 evaluates at the end only."""
    split: Literal["train", "heldout"] = "heldout"
    """Whose tasks are played; with `train` the episode seeds are still ones that training never draws."""
    tasks: tuple[str, ...] = ()
    """Task ids to play; empty plays all of the split."""
    episodes: int = Field(256, ge=2)
    """Episodes per condition."""
    temperature: float = Field(1.0, ge=0)
    """Sampling temperature in evaluation; 0 is greedy."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Nucleus mass in evaluation."""
    shuffled_control: bool = False
    """Also play guided with another task's best entry, as a control."""


class CheckpointConfig(Section):
    """What is kept, to continue after a crash."""

    interval: int = Field(50, ge=0)
    """Actor updates between checkpoints; 0 keeps only the last."""
    keep: int = Field(2, ge=1)
    """Checkpoints kept."""


class LogConfig(Section):
    """What is written beside `metrics.jsonl`, which is always there."""

    tensorboard: bool = False
    """Also write TensorBoard events (needs the `tensorboard` package)."""
    episodes_per_step: int = Field(8, ge=0)
    """Episodes per step kept as readable JSONL."""
