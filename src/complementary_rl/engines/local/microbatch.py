"""Samples of unequal length → padded micro-batches of bounded size."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from complementary_rl.engines.local.padding import Padding, padded_groups
from complementary_rl.engines.protocol import TrainingSample
from complementary_rl.types import TokenIds

TRAINING_PADDING = Padding(share=0.125, least=256)
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """B samples cut behind their last trained token and right-padded to T; N tokens in it are trained."""

    token_ids: Tensor  # [B, T]
    mask: Tensor  # [B, T] bool
    old_logprobs: Tensor  # [B, T]
    advantages: Tensor  # [B]
    weights: Tensor  # [B]
    temperatures: Tensor  # [B]
    tokens: int
    """Tokens without padding."""
    allowed: list[TokenIds]
    """[N] what each trained token, in the order of `mask`, was drawn among; () among all. Empty when that is so for every token."""


def trained_length(sample: TrainingSample) -> int:
    """Tokens up to and with the last trained one; what follows has no influence on any loss. 0 when nothing is trained."""
    return len(sample.mask) - next((i for i, trained in enumerate(reversed(sample.mask)) if trained), len(sample.mask))


def split_samples(samples: Sequence[TrainingSample], max_tokens: int) -> list[list[int]]:
    """Indices of the samples that train something, in groups of similar length and at most `max_tokens` with padding; a longer sample
    stands alone."""
    lengths = [trained_length(sample) for sample in samples]
    trained = [index for index, length in enumerate(lengths) if length]
    groups = padded_groups([lengths[index] for index in trained], max_tokens, TRAINING_PADDING)
    return [[trained[row] for row in group] for group in groups]


def collate(samples: Sequence[TrainingSample], device: torch.device) -> MicroBatch:
    """Pad and move to `device`. Every sample must train something."""
    lengths = [trained_length(sample) for sample in samples]
    width = max(lengths)

    def per_sample(values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=device)

    return MicroBatch(
        token_ids=torch.tensor([_padded(sample.token_ids, width, 0) for sample in samples], device=device),
        mask=torch.tensor([_padded(sample.mask, width, False) for sample in samples], device=device),
        old_logprobs=torch.tensor([_padded(sample.logprobs, width, 0.0) for sample in samples], dtype=torch.float32, device=device),
        advantages=per_sample([sample.advantage for sample in samples]),
        weights=per_sample([sample.weight for sample in samples]),
        temperatures=per_sample([sample.temperature for sample in samples]),
        tokens=sum(lengths),
        allowed=_allowed(samples),
    )


def _allowed(samples: Sequence[TrainingSample]) -> list[TokenIds]:
    if not any(sample.allowed for sample in samples):
        return []
    return [
        sample.allowed[position] if sample.allowed else ()
        for sample in samples
        for position, trained in enumerate(sample.mask)
        if trained
    ]


def _padded(values: Sequence[Value], width: int, fill: Value) -> list[Value]:
    kept = list(values[:width])
    return kept + [fill] * (width - len(kept))
