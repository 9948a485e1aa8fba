"""The configuration of a run: TOML → frozen pydantic models. The docstring under each field is its help text.

Unknown keys are refused with the full dotted path and the nearest valid name; see `load_config`.
"""

from typing import Self

from pydantic import model_validator

from complementary_rl.config.experience import (
    BankConfig,
    CreditConfig,
    DistillConfig,
    GateConfig,
    MergeConfig,
    RetrievalConfig,
    ToolConfig,
)
from complementary_rl.config.models import (
    ActorConfig,
    EarlierThinking,
    ExtractorConfig,
    LoraConfig,
    ModelConfig,
    OptimConfig,
    Overlong,
    RatioForm,
    SamplingConfig,
    SelfDistillationConfig,
)
from complementary_rl.config.run import CheckpointConfig, EnvConfig, EvalConfig, LogConfig, Method, RunConfig
from complementary_rl.config.section import Section

__all__ = [
    "ActorConfig",
    "BankConfig",
    "CheckpointConfig",
    "Config",
    "CreditConfig",
    "DistillConfig",
    "EarlierThinking",
    "EnvConfig",
    "EvalConfig",
    "ExtractorConfig",
    "GateConfig",
    "LogConfig",
    "LoraConfig",
    "MergeConfig",
    "Method",
    "ModelConfig",
    "OptimConfig",
    "Overlong",
    "RatioForm",
    "RetrievalConfig",
    "RunConfig",
    "SamplingConfig",
    "Section",
    "SelfDistillationConfig",
    "ToolConfig",
]


class Config(Section):
    """A whole run."""

    run: RunConfig = RunConfig()
    env: EnvConfig = EnvConfig()
    actor: ActorConfig = ActorConfig()
    extractor: ExtractorConfig = ExtractorConfig()
    self_distillation: SelfDistillationConfig = SelfDistillationConfig()
    credit: CreditConfig = CreditConfig()
    distill: DistillConfig = DistillConfig()
    bank: BankConfig = BankConfig()
    retrieval: RetrievalConfig = RetrievalConfig()
    merge: MergeConfig = MergeConfig()
    tool: ToolConfig = ToolConfig()
    gate: GateConfig = GateConfig()
    eval: EvalConfig = EvalConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    log: LogConfig = LogConfig()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        method, env, retrieval = self.run.method, self.env, self.retrieval
        if env.group_size < 2:
            raise ValueError("env.group_size must be at least 2: GRPO compares the rollouts of a group")
        split = method not in ("baseline", "all_guided")
        if split and env.guided_share == 0.5 and env.group_size % 2:
            raise ValueError(f"env.group_size is {env.group_size}: it must be even, half of a group is guided and half is free")
        if split and env.group_size < 4:
            raise ValueError(
                "env.group_size must be at least 4 when a group is split: each half needs two rollouts to have a baseline"
            )
        guided = env.group_size if method == "all_guided" else round(env.group_size * env.guided_share)
        if split and not 2 <= guided <= env.group_size - 2:
            raise ValueError(
                f"env.guided_share of {env.guided_share} leaves {guided} of {env.group_size} rollouts guided: each side needs two to have "
                "a baseline; choose another share or a larger env.group_size"
            )
        if method != "baseline" and retrieval.entries_per_group > guided:
            raise ValueError(
                f"retrieval.entries_per_group is {retrieval.entries_per_group} but a group has {guided} guided rollouts"
            )
        if method == "offline" and self.bank.source is None:
            raise ValueError(
                "bank.source: method 'offline' plays with a bank that is given; set it to a bank.sqlite or an exported bank"
            )
        if method == "baseline" and self.bank.source is not None:
            raise ValueError("bank.source: method 'baseline' has no bank; leave it out")
        if self.credit.rule == "contrast" and retrieval.entries_per_group < 2:
            raise ValueError(
                "credit.rule 'contrast' compares entries shown in one group: set retrieval.entries_per_group to 2 or more"
            )
        if self.credit.rule == "relative" and method == "all_guided":
            raise ValueError("credit.rule 'relative' compares with the free half, and method 'all_guided' has none: use 'outcome'")
        if self.credit.rule == "relative" and split and env.guided_share_end == 1:
            raise ValueError(
                "credit.rule 'relative' compares with the free half: env.guided_share_end must be below 1, or use 'outcome'"
            )
        if self.actor.updates_per_batch > env.groups_per_step:
            raise ValueError(
                f"actor.updates_per_batch is {self.actor.updates_per_batch} but a step has {env.groups_per_step} groups"
            )
        return self
