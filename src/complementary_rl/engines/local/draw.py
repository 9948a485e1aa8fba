"""From logits to tokens: inverse CDF on uniforms given by the caller, log-probs under the distribution really sampled from."""

import torch
from torch import Tensor

from complementary_rl.engines.protocol import SamplingParams


def draw(logits: Tensor, uniforms: Tensor, params: SamplingParams, allowed: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """[B, V] logits and [B] float64 uniforms in [0, 1) → tokens [B] and their log-probs [B] (float32).

    Log-probs are those after temperature, top-k and top-p. At temperature 0 the most probable token is taken (the first of equals)
    and its log-prob is that of temperature 1, since the distribution sampled from is a point. With `allowed` [B, V] (bool) only such tokens
    are drawn, and log-probs are those the model gave them before: of a policy that is not constrained, as the trainer computes them.
    """
    scaled = logits.float() / (params.temperature or 1.0)
    probabilities = torch.softmax(scaled if allowed is None else scaled.masked_fill(~allowed, float("-inf")), dim=-1)
    if params.temperature == 0:
        tokens = probabilities.argmax(dim=-1, keepdim=True)
    else:
        if params.top_k or params.top_p < 1:
            probabilities = truncate(probabilities, top_k=params.top_k, top_p=params.top_p)
        # In float64, the tail of a large vocabulary keeps its share.
        cumulative = probabilities.cumsum(dim=-1, dtype=torch.float64)
        targets = uniforms.unsqueeze(1) * cumulative[:, -1:]
        tokens = torch.searchsorted(cumulative, targets, right=True).clamp_(max=logits.shape[-1] - 1)
    logprobs = probabilities.gather(1, tokens).log_() if allowed is None else torch.log_softmax(scaled, dim=-1).gather(1, tokens)
    return tokens.squeeze(1), logprobs.squeeze(1)


def truncate(probabilities: Tensor, *, top_k: int, top_p: float) -> Tensor:
    """Keep the `top_k` most probable tokens (0: all), then of these the smallest set with mass ≥ `top_p` of theirs; renormalise.

    Among equal probabilities the lower token id is kept.
    """
    ordered, tokens = probabilities.sort(dim=-1, descending=True, stable=True)
    if top_k:
        ordered[:, top_k:] = 0
    before = ordered.cumsum(dim=-1) - ordered
    ordered = ordered.masked_fill(before >= top_p * ordered.sum(dim=-1, keepdim=True), 0)
    kept = torch.zeros_like(probabilities).scatter_(1, tokens, ordered)
    return kept / kept.sum(dim=-1, keepdim=True)
