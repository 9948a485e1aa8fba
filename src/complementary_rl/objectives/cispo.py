"""The extractor's objective: CISPO (Eq 3 of arXiv 2603.17621) with the count-aware weights of Eq 7.

One sample per credited generation: what the extractor sampled (operations, an answer, a merge) after its prompt. The clipped ratio
only scales the gradient of log π, so no token drops out of it, unlike in the actor's surrogate.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from complementary_rl.engines.protocol import LossInputs, LossOutput, TrainingSample
from complementary_rl.objectives.ratios import LOG_RATIO_CLAMP, approximate_kl, metric_sums, token_log_ratios
from complementary_rl.objectives.reweighting import retrain_weight
from complementary_rl.objectives.samples import generation_sample
from complementary_rl.types import Generation


@dataclass(frozen=True, slots=True)
class CreditedGeneration:
    """A generation with its credit r̄(m) and what Eq 7 counts about it (`last_trained_update` None: never trained)."""

    generation: Generation
    credit: float
    times_trained: int = 0
    last_trained_update: int | None = None


def cispo_samples(
    batch: Sequence[CreditedGeneration],
    *,
    retrain_gap: int,
    retrain_alpha: float,
    update: int,
    negative_scale: float = 1.0,
    weighted_mean: bool = False,
) -> list[TrainingSample]:
    """The samples of the extractor's update number `update`, in batch order.

    Â_i = r_i − mean(r) over the whole batch, times `negative_scale` where negative, times w(m_i) of Eq 7; the weight of every
    sample is 1/Σ|m|, over all tokens of the batch. Generations without a token count in the mean and give no sample.

    The paper centres credits before it weights them. What earns credit often is mostly good, and Eq 7 gives it the small weights: what
    is left is negative on the whole, and an extractor that is pushed away from all it writes comes to write nothing. `weighted_mean`
    takes the mean with the weights w(m_i), so that Σ_i w(m_i)·(r_i − mean) is zero.
    """
    ids = [item.generation.id for item in batch]
    assert len(set(ids)) == len(ids), "one training sample per distinct generation"
    tokens = sum(len(item.generation.token_ids) for item in batch)
    if not tokens:
        return []
    weights = [
        retrain_weight(item.times_trained, item.last_trained_update, update=update, gap=retrain_gap, alpha=retrain_alpha)
        for item in batch
    ]
    shares = weights if weighted_mean and any(weights) else [1.0] * len(batch)
    mean = sum(share * item.credit for share, item in zip(shares, batch, strict=True)) / sum(shares)
    samples = []
    for item, weight in zip(batch, weights, strict=True):
        advantage = item.credit - mean
        if advantage < 0:
            advantage *= negative_scale
        if item.generation.token_ids:
            samples.append(generation_sample(item.generation, advantage * weight, 1.0 / tokens))
    return samples


@dataclass(frozen=True, slots=True)
class CispoLoss:
    """−Σ_i w_i Σ_t sg(clip(ρ_it, 1−ε_low, 1+ε_high)) · Â_i · log π_it, plus two optional anchors for long runs, under the same
    weights:

    + `kl_coefficient` · Σ_i w_i Σ_t (ref/π − 1 − log ref/π), the k3 estimate of the KL to the start model;
    − `entropy_coefficient` · Σ_i w_i Σ_t H_it.

    Sums over tokens: `ratio`, `clip_share` (ratios outside the bounds), `approx_kl` (old ‖ new), and with the anchors
    `reference_kl` and `entropy`.
    """

    clip_low: float = 0.1
    clip_high: float = 0.1
    kl_coefficient: float = 0.0
    entropy_coefficient: float = 0.0

    @property
    def needs_reference(self) -> bool:
        return self.kl_coefficient > 0

    @property
    def needs_entropy(self) -> bool:
        return self.entropy_coefficient > 0

    def __call__(self, inputs: LossInputs) -> LossOutput:
        """`LossInputs` of B sequences to a scalar loss."""
        mask = inputs.mask
        token_weights = inputs.weights.unsqueeze(1) * mask
        logprobs = torch.where(mask, inputs.logprobs, torch.zeros_like(inputs.logprobs))
        with torch.no_grad():
            log_ratio = token_log_ratios(inputs).clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP)
            ratio = torch.exp(log_ratio)
            low, high = 1.0 - self.clip_low, 1.0 + self.clip_high
            factor = ratio.clamp(low, high) * inputs.advantages.unsqueeze(1)
        loss = -(token_weights * factor * logprobs).sum()
        watched = {
            "ratio": (ratio * mask).sum(),
            "clip_share": (((ratio < low) | (ratio > high)) & mask).sum(),
            "approx_kl": approximate_kl(log_ratio).sum(),
        }
        if self.needs_reference:
            assert inputs.reference_logprobs is not None
            to_reference = torch.where(mask, inputs.reference_logprobs - logprobs, torch.zeros_like(logprobs))
            divergence = approximate_kl(to_reference.clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP))
            loss = loss + self.kl_coefficient * (token_weights * divergence).sum()
            watched["reference_kl"] = divergence.sum()
        if self.needs_entropy:
            assert inputs.entropy is not None
            entropy = torch.where(mask, inputs.entropy, torch.zeros_like(inputs.entropy))
            loss = loss - self.entropy_coefficient * (token_weights * entropy).sum()
            watched["entropy"] = entropy.sum()
        return LossOutput(loss, metric_sums(mask.sum(), **watched))
