"""The configuration of a run: TOML → frozen pydantic models. The docstring under each field is its help text.

Unknown keys are refused with the full dotted path and the nearest valid name; see `load_config`.
"""

from typing import Self

from pydantic import model_validator

from complementary_rl.config.cluster import ClusterConfig, WorkersConfig
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
    EngineName,
    ExtractorConfig,
    LoraConfig,
    ModelConfig,
    OptimConfig,
    Overlong,
    RatioForm,
    SamplingConfig,
    SelfDistillationConfig,
    VllmConfig,
)
from complementary_rl.config.run import CheckpointConfig, EnvConfig, EvalConfig, LogConfig, Method, RunConfig
from complementary_rl.config.section import Section

__all__ = [
    "ActorConfig",
    "BankConfig",
    "CheckpointConfig",
    "ClusterConfig",
    "Config",
    "CreditConfig",
    "DistillConfig",
    "EarlierThinking",
    "EngineName",
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
    "VllmConfig",
    "WorkersConfig",
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
    cluster: ClusterConfig = ClusterConfig()
    log: LogConfig = LogConfig()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        method, env, retrieval = self.run.method, self.env, self.retrieval
        if env.group_size < 2:
            raise ValueError("env.group_size must be at least 2: GRPO compares the rollouts of a group")
        split = method not in ("baseline", "all_guided")
        if split and env.group_size % 2:
            raise ValueError(f"env.group_size is {env.group_size}: it must be even, half of a group is guided and half is free")
        if split and env.group_size < 4:
            raise ValueError(
                "env.group_size must be at least 4 when a group is split: each half needs two rollouts to have a baseline"
            )
        guided = env.group_size if method == "all_guided" else env.group_size // 2
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
        if self.actor.constrained and self.tool.enabled:
            raise ValueError("actor.constrained leaves no room for a question to the extractor; switch it or tool.enabled off")
        if self.actor.updates_per_batch > env.groups_per_step:
            raise ValueError(
                f"actor.updates_per_batch is {self.actor.updates_per_batch} but a step has {env.groups_per_step} groups"
            )
        for name, model, workers in (
            ("actor", self.actor, self.cluster.actor),
            ("extractor", self.extractor, self.cluster.extractor),
        ):
            if model.engine == "ray" and model.model.device != "auto":
                raise ValueError(
                    f"{name}.model.device is {model.model.device!r}, but with engine 'ray' processes have the devices that Ray gives them: "
                    f"leave it out and set cluster.{name}.train_gpus and sample_gpus"
                )
            if model.engine == "local" and workers != WorkersConfig():
                raise ValueError(f"cluster.{name} is set, but {name}.engine is 'local'; set {name}.engine = 'ray', or leave it out")
            _check_sampler(name, model)
        shared = set(self.actor.vllm.urls) & set(self.extractor.vllm.urls)
        if shared and (self.actor.model.lora is None or self.extractor.model.lora is None):
            raise ValueError(
                f"extractor.vllm.urls: {min(shared)} is the actor's as well; a server holds the weights of one model, or adapters of both: "
                "start another, or set model.lora of both"
            )
        return self


def _check_sampler(name: str, model: ActorConfig | ExtractorConfig) -> None:
    if model.sampler == "engine":
        if model.vllm != VllmConfig():
            raise ValueError(f"{name}.vllm is set, but {name}.sampler is 'engine'; set {name}.sampler = 'vllm', or leave it out")
        return
    if not model.vllm.urls:
        raise ValueError(
            f"{name}.vllm.urls is empty, but {name}.sampler is 'vllm'; name the servers, as in ['http://127.0.0.1:8000']"
        )
    if isinstance(model, ExtractorConfig) and model.constrained:
        raise ValueError(
            "extractor.constrained: vllm's log-probs would be those under the grammar, which are not what is trained; "
            "leave it out, or set extractor.sampler = 'engine'"
        )
