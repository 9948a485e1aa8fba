"""The configuration of a run: TOML → frozen pydantic models. The docstring under each field is its help text.

Unknown keys are refused with the full dotted path and the nearest valid name; see `load_config`.
"""

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

Method = Literal["complementary", "baseline", "static_online", "offline", "exp_only", "all_guided", "pooled"]
RatioForm = Literal["sequence", "sequence_mean", "token"]


class Section(BaseModel):
    """Base of every section: frozen, strict about names, and no number is infinite or NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


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
    max_turns: int | None = Field(None, ge=1)
    """Turn limit; None takes that of each task."""
    step_timeout: float = Field(30.0, gt=0)
    """Seconds one reset or step may take before its episode is given up."""
    fault_budget: int = Field(64, ge=0)
    """Episodes that may be lost to environment faults in a run before it stops; in a mixture, of each part before it sits out."""


class SamplingConfig(Section):
    """How a model samples while training."""

    temperature: float = Field(1.0, gt=0)
    """Softmax temperature; log-probs are recorded under it."""
    max_new_tokens: int = Field(64, ge=1)
    """Most tokens of one generation."""


class OptimConfig(Section):
    """AdamW of one model; constant learning rate as in the paper."""

    lr: float = Field(1e-6, gt=0)
    """Learning rate."""
    weight_decay: float = Field(0.0, ge=0)
    """Decoupled weight decay."""
    betas: tuple[float, float] = (0.9, 0.95)
    """AdamW β1 and β2."""
    max_grad_norm: float = Field(1.0, gt=0)
    """The gradient's global norm is clipped to this."""
    max_tokens_per_microbatch: int = Field(16_384, ge=1)
    """Token budget (padding included) of one forward and backward pass; gradients accumulate over passes."""


class ModelConfig(Section):
    """Where a model comes from."""

    path: str = "embedded:actor"
    """`embedded:actor` | `embedded:extractor` (shipped), a Hugging Face folder, or a hub name."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Parameter type; float32 is fastest on CPUs without bf16 units."""
    device: str = "auto"
    """Torch device; `auto` takes a GPU if there is one."""
    max_context: int | None = Field(None, ge=16)
    """Longest sequence in tokens; None takes the model's."""


class ActorConfig(Section):
    """The policy that acts, trained by GRPO (Eq 4/5)."""

    model: ModelConfig = ModelConfig(path="embedded:actor")
    """Weights and tokenizer."""
    sampling: SamplingConfig = SamplingConfig()
    """Sampling while training."""
    optim: OptimConfig = OptimConfig()
    """Optimiser."""
    ratio: RatioForm = "sequence"
    """Importance ratio: `sequence` (product over the episode's own tokens, as the paper writes), `sequence_mean` (geometric mean, GSPO)
    or `token`."""
    clip_epsilon: float = Field(0.2, gt=0)
    """ε of the clipped surrogate."""
    updates_per_batch: int = Field(1, ge=1)
    """Optimiser steps per batch: its groups are dealt into this many minibatches. With 1 every ratio starts at 1 and no clip acts."""
    prompts: str = "compact"
    """Prompt set: a folder of `complementary_rl/prompts` or a path."""


class SelfDistillationConfig(Section):
    """Next-token loss on guided episodes that beat the free half's mean, with everything experience removed from the context."""

    enabled: bool = False
    """Switch."""
    interval: int = Field(1, ge=1)
    """Every how many actor updates it is added."""
    coefficient: float = Field(0.3, gt=0)
    """Weight of the loss beside the RL loss, in units of advantage: an imitated episode pulls as this advantage would."""
    source: Literal["guided", "own"] = "guided"
    """`guided`: guided episodes better than the free mean. `own`: any successful episode (the imitation control of the baseline)."""


class ExtractorConfig(Section):
    """The model that writes experience, trained by CISPO (Eq 3) with the weights of Eq 7."""

    model: ModelConfig = ModelConfig(path="embedded:extractor")
    """Weights and tokenizer."""
    sampling: SamplingConfig = SamplingConfig(max_new_tokens=8192)
    """Sampling of operations, merges and answers."""
    optim: OptimConfig = OptimConfig()
    """Optimiser."""
    batch_size: int = Field(64, ge=2)
    """|Bφ|: credited generations per update."""
    clip_low: float = Field(0.1, gt=0, lt=1)
    """ε_low of Eq 3."""
    clip_high: float = Field(0.1, gt=0)
    """ε_high of Eq 3."""
    retrain_gap: int = Field(1, ge=0)
    """δ of Eq 7: a generation trained within the last δ updates gets weight 0."""
    retrain_alpha: float = Field(0.5, ge=0)
    """α of Eq 7: weight (1 + times trained)^(−α)."""
    weighted_mean: bool = False
    """Take the mean that credits are compared with under the weights of Eq 7. False weights after centring, as the paper does; with a
    large `retrain_alpha` what is left is negative on the whole, and the extractor drifts to `return`."""
    kl_coefficient: float = Field(0.0, ge=0)
    """KL to the start model, as an anchor for long runs; 0 is off as in the paper."""
    entropy_coefficient: float = Field(0.0, ge=0)
    """Entropy bonus, an anchor; 0 is off as in the paper."""
    negative_scale: float = Field(1.0, ge=0, le=1)
    """Factor on negative advantages, an anchor; 1 is the paper."""
    max_staleness: int = Field(8, ge=0)
    """Credited generations more than this many extractor versions old are dropped and counted."""
    max_operations: int = Field(3, ge=1)
    """Most operations taken from one distillation; the rest are dropped and counted."""
    prompts: str = "compact"
    """Prompt set, as for the actor."""


class CreditConfig(Section):
    """How the outcome of rollouts becomes the credit r(m) ∈ [−1, 1] of the generation that wrote the entry."""

    rule: Literal["outcome", "relative", "contrast"] = "outcome"
    """`outcome`: +1 success, −1 failure (the paper). `relative`: success rate minus the free half's. `contrast`: success rate minus
    that of the other entries shown in the same group (groups that showed one entry give no credit)."""
    unparsable: float | None = Field(-1.0, ge=-1, le=1)
    """Credit of output that could not be parsed; None gives none and counts it."""
    returned: float | None = Field(None, ge=-1, le=1)
    """Credit of `return` (nothing worth keeping); None gives none and counts it."""
    refused: float | None = Field(-1.0, ge=-1, le=1)
    """Credit of output of which the bank refused every text (too short, or junk); None gives none and counts it."""


class DistillConfig(Section):
    """Which episodes the extractor reads."""

    per_group: int | None = Field(None, ge=1)
    """Most episodes of a group that are read (best and worst by turns); None reads all."""
    max_attempts: int = Field(3, ge=1)
    """Tries before an episode whose distillation fails is set aside with its cause."""
    queue_size: int = Field(1024, ge=1)
    """Episodes waiting for the extractor; when full, the submitter waits."""
    batch_size: int = Field(64, ge=1)
    """Episodes read in one batched call of the extractor."""


class BankConfig(Section):
    """The experience bank."""

    source: Path | None = None
    """Bank to start from: the `bank.sqlite` of another run, or what `crl bank export` wrote. Its live entries and their outcomes
    are copied once, when the run starts. Method `offline` needs it."""
    capacity: int = Field(20_000, ge=1)
    """Most live entries."""
    eviction: Literal["fifo", "lru", "value"] = "fifo"
    """Who leaves when it is full: the oldest, the least recently retrieved, or the worst by posterior mean."""
    embedder: str = "hashing"
    """`hashing` (built in, no download) or a sentence-transformers model by name or path."""
    protect_proven: bool = False
    """An update does not retire a target whose posterior mean of success (see `retrieval.prior_success`) is above an untried entry's:
    both stay, and compete. False replaces it, as in the paper."""
    min_chars: int = Field(4, ge=1)
    """Shorter entries are refused and counted."""
    max_chars: int = Field(2000, ge=1)
    """Longer entries are cut off and counted."""
    junk_filter: bool = True
    """Refuse, and count by reason, texts that say nothing whatever the task: boilerplate, endless repetition, the task's own description.
    False takes everything, as the paper does."""
    boilerplate: Path | None = None
    """TOML file of phrases that count as boilerplate, instead of the shipped `complementary_rl/experience/boilerplate.toml`."""
    duplicate_similarity: float = Field(1.0, gt=0, le=1)
    """An added entry whose text has at least this cosine to a live one of the same key becomes a vote for that one; 1 merges only
    identical texts."""


class RetrievalConfig(Section):
    """How entries are chosen."""

    score: Literal["paper", "value"] = "paper"
    """`paper` is Eq 6; `value` blends similarity, the posterior of success (Thompson sampling while training, mean in evaluation) and
    diversity."""
    entries_per_rollout: int = Field(1, ge=1)
    """k, entries shown to one guided rollout."""
    entries_per_group: int = Field(1, ge=1)
    """Different entries (or sets of k) shown inside one group, dealt to its guided rollouts by turns."""
    pool_factor: int = Field(16, ge=1)
    """Nearest candidates per entry wanted."""
    min_similarity: float = Field(0.0, ge=-1, le=1)
    """Cosine floor; when nothing reaches it, the rollout is free and is labelled so."""
    cross_task: bool = False
    """Also search the scopes of other tasks, for what the own scope does not fill."""
    cross_task_floor: float = Field(0.5, ge=-1, le=1)
    """Cosine floor there; `min_similarity` holds as well."""
    contamination_guard: bool = True
    """Offer an entry no longer in another scope whose guided rollouts with it do worse than free ones (see docs/bank.md)."""
    diversity_lambda: float = Field(0.4, ge=0)
    """λ of Eq 6."""
    recency_steps: int = Field(1, ge=0)
    """Entries retrieved within this many actor steps count as recent in Eq 6; 0 is off."""
    demote_probability: float = Field(0.5, ge=0, le=1)
    """Chance that a recent entry is really demoted (1[recent] applied)."""
    prior_success: float = Field(0.4, gt=0)
    """α0 of the Beta prior of an entry's success (`value`); pessimistic, or every new entry beats a proven one."""
    prior_failure: float = Field(2.0, gt=0)
    """β0 of that prior."""
    trial_rate: float = Field(0.0, ge=0, le=1)
    """Share of draws reserved for entries never shown yet (`value`), so that each gets a first trial."""
    batch_size: int = Field(16, ge=1)
    """B: queries of concurrent rollouts gathered for one search (schedule `async`)."""
    max_wait: float = Field(0.001, ge=0)
    """t_max: seconds a query waits for B to come together."""
    searches: int = Field(2, ge=1)
    """W: searches at the same time, each in a thread of its own (schedule `async`)."""
    timeout: float = Field(10.0, gt=0)
    """Seconds after which a rollout goes on without experience, as a free one (schedule `async`; in `lockstep` no clock decides)."""


class MergeConfig(Section):
    """Consolidation of the bank by the extractor."""

    enabled: bool = True
    """Switch."""
    mode: Literal["chunks", "clusters"] = "chunks"
    """Which entries meet. `chunks` (the paper): chunks slide over all entries of a task. `clusters`: near-duplicates of a task, the most
    redundant first; entries without any are never read."""
    interval: int = Field(5, ge=1)
    """Actor updates between merges."""
    redundancy: float | None = Field(None, gt=0, le=1)
    """Also merge after an update at which this share of the live entries have a near-duplicate and were not read beside it yet; None is
    off."""
    similarity: float = Field(0.9, gt=0, le=1)
    """Cosine from which two texts of one task are near-duplicates, for `mode` `clusters` and for `redundancy`. It depends on the embedder:
    opposite advice may be near (see docs/bank.md), but here the extractor decides."""
    chunk: int = Field(5, ge=2)
    """Entries the extractor sees at once."""
    max_chunks: int = Field(8, ge=1)
    """Chunks per merge; the next merge goes on where this one stopped."""


class ToolConfig(Section):
    """search_and_ask: a guided actor may ask the extractor in the middle of an episode."""

    enabled: bool = False
    """Switch."""
    budget: int = Field(2, ge=1)
    """Questions per episode."""
    timeout: float = Field(30.0, gt=0)
    """Seconds after which the actor is told that no answer came."""
    max_new_tokens: int = Field(512, ge=1)
    """Most tokens of an answer."""


class GateConfig(Section):
    """Eq 8: the actor accepts, refines or rejects an entry before it acts. Off by default, as in the paper."""

    enabled: bool = False
    """Switch."""
    warmup_steps: int = Field(10, ge=0)
    """Steps in which the success rate is estimated and the gate is not asked."""
    max_new_tokens: int = Field(64, ge=1)
    """Most tokens of a verdict."""


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
        if self.actor.updates_per_batch > env.groups_per_step:
            raise ValueError(
                f"actor.updates_per_batch is {self.actor.updates_per_batch} but a step has {env.groups_per_step} groups"
            )
        return self
