"""Random inputs of losses, and their gradient with respect to the current log-probs."""

import torch
from torch import Tensor

from complementary_rl.engines.protocol import Loss, LossInputs


def random_inputs(seed: int = 0, *, spread: float = 0.3, batch: int = 4, length: int = 7) -> LossInputs:
    """Ragged masks, a policy that has moved by about `spread` per token, garbage where the mask is False."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    mask = torch.rand(batch, length, generator=generator) < 0.6
    mask[:, 0] = False
    mask[:, 1] = True
    old = -normal(batch, length).abs()
    new = old + spread * normal(batch, length)
    garbage = torch.full_like(old, -1e4)
    return LossInputs(
        logprobs=torch.where(mask, new, garbage).requires_grad_(),
        old_logprobs=torch.where(mask, old, torch.zeros_like(old)),
        mask=mask,
        advantages=normal(batch),
        weights=normal(batch).abs(),
        reference_logprobs=torch.where(mask, old + spread * normal(batch, length), garbage),
        entropy=normal(batch, length).abs().requires_grad_(),
    )


def value_and_gradient(loss: Loss, inputs: LossInputs) -> tuple[float, Tensor]:
    """The loss and its gradient [B, T] with respect to `inputs.logprobs`."""
    output = loss(inputs)
    (gradient,) = torch.autograd.grad(output.loss, inputs.logprobs)
    return float(output.loss.detach()), gradient


def metrics(loss: Loss, inputs: LossInputs) -> dict[str, float]:
    """The quotients a trainer would report."""
    return {name: numerator / denominator for name, (numerator, denominator) in loss(inputs).sums.items()}
