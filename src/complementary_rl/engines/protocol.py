"""One engine per trained model: it samples, trains, publishes and saves. Callers know this protocol and nothing of torch devices.

trainer weights --publish()--> sampler weights (version n)
   ^ update(terms)                  | sample(requests)
   |                                v
TrainingSample  <-- masks, advantages --  Generation (token ids, sampling-time log-probs, version)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from complementary_rl.types import Generation, Metrics, TokenIds

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to sample. `temperature` 0 is greedy. `top_p` < 1 or `top_k` > 0 truncate the distribution and are refused for
    generations that will be trained on, since the trainer could not reproduce their log-probs."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_new_tokens: int = 64


@dataclass(frozen=True, slots=True)
class Choice:
    """A completion that has to be one of `texts` (the token limit may still cut it off).

    With `closing` it may think first: behind the token `opening`, or, without one, from the start, anything is sampled up to `closing`.
    """

    texts: tuple[str, ...]
    opening: int | None = None
    closing: int | None = None


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """One completion to sample. `id` becomes the generation's id.

    `prompt_ids` is always the whole prompt. `session`, if given, names a KV cache kept between calls: the sampler re-reads only
    what it has not seen. It changes speed, never results. `seed` fixes the draws whatever else is in the batch.

    `schema`, if given, is a JSON schema that the completion is made to follow (the token limit may still cut it off). Log-probs are then
    those of the policy without it: what the trainer can compute, and what is trained.

    `choice`, which excludes a schema, leaves so few tokens to draw among that these are recorded with the generation
    (`Generation.allowed`). Log-probs are then those of the constrained policy, and so are the trainer's.
    """

    id: str
    prompt_ids: TokenIds
    seed: int
    session: str | None = None
    schema: str | None = None
    choice: Choice | None = None


@dataclass(frozen=True, slots=True)
class TrainingSample:
    """One sequence to train on; all fields of length T (tokens).

    `mask[t]` is True where token t was sampled by this model and is trained; `logprobs[t]` is its sampling-time log-prob (0
    elsewhere). `weight` is the factor of this sample's term in the batch objective (for Eq 4/5 ½·1/K_c·1/groups, for Eq 3
    1/Σ|m|): terms are *summed*, so micro-batches and ranks need not know each other. `allowed[t]` is as in `Generation`; as a whole ()
    where every token was drawn among all.
    """

    token_ids: TokenIds
    mask: tuple[bool, ...]
    logprobs: tuple[float, ...]
    advantage: float
    weight: float
    temperature: float = 1.0
    allowed: tuple[TokenIds, ...] = ()


@dataclass(frozen=True, slots=True)
class LossInputs:
    """What a loss sees. B sequences, T positions; position t holds what is known about *predicting* token t (t ≥ 1; column 0 is
    masked out). `reference_logprobs` [B, T] come from the frozen start model, or None when no term asks for them."""

    logprobs: "Tensor"  # [B, T] current policy, with gradient
    old_logprobs: "Tensor"  # [B, T] at sampling time
    mask: "Tensor"  # [B, T] bool
    advantages: "Tensor"  # [B]
    weights: "Tensor"  # [B]
    reference_logprobs: "Tensor | None" = None
    entropy: "Tensor | None" = None  # [B, T] of the current policy, with gradient; None when not asked for


@dataclass(frozen=True, slots=True)
class LossOutput:
    """`loss` is a scalar to minimise, summed over the micro-batch. `sums` are detached sums over trained tokens or sequences that
    the trainer adds over micro-batches: name → (numerator, denominator); the reported metric is their quotient."""

    loss: "Tensor"
    sums: dict[str, tuple[float, float]]


class Loss(Protocol):
    """A pure function of tensors. `needs_reference` / `needs_entropy` ask the trainer for the optional inputs."""

    @property
    def needs_reference(self) -> bool: ...

    @property
    def needs_entropy(self) -> bool: ...

    def __call__(self, inputs: LossInputs) -> LossOutput: ...


@dataclass(frozen=True, slots=True)
class LossTerm:
    """Samples with the loss they go through; several terms make one optimiser step. `name` prefixes its metrics."""

    name: str
    samples: Sequence[TrainingSample]
    loss: Loss
    coefficient: float = 1.0


@dataclass(frozen=True, slots=True)
class OptimParams:
    """AdamW settings of one update. `embedding_lr` is the learning rate of the token embeddings (and of the output head tied to
    them); None takes `lr`. `max_grad_norm` clips the global norm."""

    lr: float = 1e-6
    embedding_lr: float | None = None
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.95)
    max_grad_norm: float = 1.0
    max_tokens_per_microbatch: int = 16_384


class Engine(Protocol):
    """One trained model. All methods may be awaited from one event loop; an engine serialises its own compute."""

    name: str
    tokenizer: "PreTrainedTokenizerBase"
    max_context: int
    version: int
    """Version of the weights the sampler serves now: 0 at start, +1 per publish."""
    compute_seconds: dict[str, float]
    """Seconds of compute by phase ("sample", "update", "logprobs", "publish") since the engine was made."""

    async def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Generation]:
        """Sample one completion per request, in request order. Raises ValueError for an empty prompt or ids out of range."""
        ...

    def release(self, sessions: Sequence[str]) -> None:
        """Forget the KV caches of these sessions; unknown names are ignored."""
        ...

    async def logprobs(self, samples: Sequence[TrainingSample]) -> "list[Tensor]":
        """Trainer log-probs of each sample's tokens, [T] each, 0 where the mask is False; no gradient."""
        ...

    async def update(self, terms: Sequence[LossTerm], optim: OptimParams) -> Metrics:
        """One optimiser step on the sum of the terms. If loss or gradient norm is not finite the weights and the optimiser
        state stay untouched and ``skipped`` is 1 in the returned metrics."""
        ...

    async def publish(self) -> int:
        """Copy trainer weights to the sampler; returns the new version."""
        ...

    def save(self, directory: Path) -> None:
        """Write weights, optimiser, RNG and version for `load`; bit-exact."""
        ...

    def load(self, directory: Path) -> None:
        """Restore what `save` wrote. Raises CheckpointError when files are missing or belong to another model."""
        ...

    def export(self, directory: Path) -> None:
        """Write a normal Hugging Face folder (model, tokenizer, chat template) that `transformers` loads."""
        ...

    def take_events(self) -> list[str]:
        """What was survived since the last call, such as dead processes that were replaced; for the run's log."""
        ...

    def close(self) -> None:
        """Stop worker threads; idempotent."""
        ...
