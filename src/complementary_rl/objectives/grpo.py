"""The actor's clipped surrogate (Eq 5 of arXiv 2603.17621).

Samples are whole episodes with the advantages and weights of `advantages.group_advantages`; the ratio compares the policy being
trained with the one that sampled, over the actor's own tokens.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from complementary_rl.engines.protocol import LossInputs, LossOutput
from complementary_rl.objectives.ratios import LOG_RATIO_CLAMP, approximate_kl, metric_sums, token_log_ratios

RatioForm = Literal["sequence", "sequence_mean", "token"]


@dataclass(frozen=True, slots=True)
class GrpoLoss:
    """−Σ_k w_k · min(ρ_k Â_k, clip(ρ_k, 1−ε, 1+ε) Â_k), summed over the sequences of the micro-batch.

    `ratio`: "sequence", the product of the token ratios (as the paper writes); "sequence_mean", their geometric mean (GSPO);
    "token", one ratio per token, the objective being the mean of the clipped terms over the sequence's own tokens, so that an
    episode counts the same whatever its length. Sequences without a trained token contribute nothing.

    Sums, over sequences (for "token" over tokens): `ratio`, `clip_share` (terms whose gradient the clip removed), `clamp_share`
    (terms with |log ρ| ≥ `log_ratio_clamp`); over tokens: `approx_kl`, the k3 estimate of KL(old ‖ new).
    """

    ratio: RatioForm = "sequence"
    clip_epsilon: float = 0.2
    log_ratio_clamp: float = LOG_RATIO_CLAMP
    needs_reference: ClassVar[bool] = False
    needs_entropy: ClassVar[bool] = False

    def __call__(self, inputs: LossInputs) -> LossOutput:
        """`LossInputs` of B sequences to a scalar loss."""
        token_ratios = token_log_ratios(inputs)
        lengths = inputs.mask.sum(dim=1)
        if self.ratio == "token":
            log_ratio, present = token_ratios, inputs.mask
            shares = 1.0 / lengths.clamp(min=1).unsqueeze(1)
        else:
            log_ratio, present = token_ratios.sum(dim=1, keepdim=True), (lengths > 0).unsqueeze(1)
            if self.ratio == "sequence_mean":
                log_ratio = log_ratio / lengths.clamp(min=1).unsqueeze(1)
            shares = torch.ones_like(log_ratio)
        advantages = inputs.advantages.unsqueeze(1)
        ratio = torch.exp(log_ratio.clamp(-self.log_ratio_clamp, self.log_ratio_clamp))
        bounded = ratio.clamp(1.0 - self.clip_epsilon, 1.0 + self.clip_epsilon)
        objective = torch.minimum(ratio * advantages, bounded * advantages)
        loss = -(inputs.weights.unsqueeze(1) * shares * objective * present).sum()
        sums = self._sums(log_ratio, ratio, advantages, present) | _token_sums(token_ratios, inputs.mask, self.log_ratio_clamp)
        return LossOutput(loss, sums)

    def _sums(self, log_ratio: Tensor, ratio: Tensor, advantages: Tensor, present: Tensor) -> dict[str, tuple[float, float]]:
        too_high = (advantages > 0) & (ratio > 1.0 + self.clip_epsilon)
        too_low = (advantages < 0) & (ratio < 1.0 - self.clip_epsilon)
        return metric_sums(
            present.sum(),
            ratio=(ratio * present).sum(),
            clip_share=((too_high | too_low) & present).sum(),
            clamp_share=((log_ratio.abs() >= self.log_ratio_clamp) & present).sum(),
        )


def _token_sums(token_ratios: Tensor, mask: Tensor, limit: float) -> dict[str, tuple[float, float]]:
    return metric_sums(mask.sum(), approx_kl=approximate_kl(token_ratios.detach().clamp(-limit, limit)).sum())
