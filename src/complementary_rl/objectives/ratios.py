"""Importance ratios ρ = πθ / πθ_old over the tokens a model sampled, and the sums that watch them."""

import torch
from torch import Tensor

from complementary_rl.engines.protocol import LossInputs

LOG_RATIO_CLAMP = 10.0
"""|log ρ| is clamped to this before exp: a stray ratio stays finite (e^10 ≈ 22,026) and its gradient is cut off."""


def token_log_ratios(inputs: LossInputs) -> Tensor:
    """log ρ per token, [B, T], exactly 0 where the mask is False (whatever the log-probs hold there)."""
    difference = inputs.logprobs - inputs.old_logprobs
    return torch.where(inputs.mask, difference, torch.zeros_like(difference))


def approximate_kl(log_ratio: Tensor) -> Tensor:
    """The k3 estimate ρ − 1 − log ρ of KL(old ‖ new) per token, for tokens sampled from the old policy; never negative."""
    return torch.expm1(log_ratio) - log_ratio


def metric_sums(denominator: Tensor, **numerators: Tensor) -> dict[str, tuple[float, float]]:
    """Detached (numerator, denominator) pairs under one denominator, fetched from the device in a single transfer."""
    names = list(numerators)
    values = torch.stack([denominator.detach().double(), *(numerators[name].detach().double() for name in names)]).tolist()
    return {name: (value, values[0]) for name, value in zip(names, values[1:], strict=True)}
