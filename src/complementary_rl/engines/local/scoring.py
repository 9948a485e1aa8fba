"""Log-probs and entropies of the trained tokens of a micro-batch. Logits are made for these tokens only, a chunk at a time."""

import torch
from torch import Tensor

from complementary_rl.engines.local.decoder import Decoder
from complementary_rl.engines.local.microbatch import MicroBatch
from complementary_rl.engines.local.recompute import recomputed
from complementary_rl.types import TokenIds

LOGIT_ELEMENTS = 1 << 24
"""Most logits in memory at a time (64 MB in fp32); with more, chunks are recomputed in the backward pass."""


class Scorer(torch.nn.Module):
    """`score` as a module: what has to happen around a whole pass, such as gathering parameters, hooks onto its call."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.model = decoder.model
        self._decoder = decoder

    def forward(self, batch: MicroBatch, *, entropy: bool = False) -> tuple[Tensor, Tensor | None]:
        """See `score`."""
        return score(self._decoder, batch, entropy=entropy)


def score(decoder: Decoder, batch: MicroBatch, *, entropy: bool = False) -> tuple[Tensor, Tensor | None]:
    """Log-probs [B, T] of the tokens of `batch` under temperature, among what was allowed, and, if asked for, entropies [B, T] of the
    distributions they come from. Position t is about predicting token t; 0 where nothing is trained. With gradient if it is enabled."""
    rows, columns = batch.mask.nonzero(as_tuple=True)
    states_BTH = decoder.hidden(batch.token_ids[:, :-1])
    states_NH = states_BTH[rows, columns - 1]
    targets_N = batch.token_ids[rows, columns]
    temperatures_N = batch.temperatures[rows]
    chunk = max(1, LOGIT_ELEMENTS // decoder.vocab_size)
    split = [torch.split(each, chunk) for each in (states_NH, targets_N, temperatures_N)]
    pieces = [
        (states, targets, temperatures, batch.allowed[index * chunk : (index + 1) * chunk])
        for index, (states, targets, temperatures) in enumerate(zip(*split, strict=True))
    ]
    if len(pieces) > 1 and torch.is_grad_enabled():
        scored = [recomputed(_score_tokens, decoder, *piece, entropy) for piece in pieces]
    else:
        scored = [_score_tokens(decoder, *piece, entropy) for piece in pieces]
    places = (rows, columns)
    logprobs = _spread(batch.mask, places, [logprobs_n for logprobs_n, _ in scored])
    entropies = _spread(batch.mask, places, [entropy_n for _, entropy_n in scored]) if entropy else None
    return logprobs, entropies


def _score_tokens(
    decoder: Decoder, states: Tensor, targets: Tensor, temperatures: Tensor, allowed: list[TokenIds], entropy: bool
) -> tuple[Tensor, Tensor]:
    logits_nV = decoder.logits(states).float() / temperatures.unsqueeze(1)
    if any(allowed):
        # Not −∞, of which the entropy would make NaN.
        logits_nV = logits_nV.masked_fill(_ruled_out(allowed, logits_nV), torch.finfo(torch.float32).min)
    logprobs_nV = torch.log_softmax(logits_nV, dim=-1)
    logprobs_n = logprobs_nV.gather(1, targets.unsqueeze(1)).squeeze(1)
    return logprobs_n, -(logprobs_nV.exp() * logprobs_nV).sum(dim=-1) if entropy else logprobs_n


def _ruled_out(allowed: list[TokenIds], logits_nV: Tensor) -> Tensor:
    """[n, V] bool: what each token could not have been."""
    ruled_out = torch.zeros(logits_nV.shape, dtype=torch.bool)
    for row, tokens in enumerate(allowed):
        if tokens:
            ruled_out[row] = True
            ruled_out[row, list(tokens)] = False
    return ruled_out.to(logits_nV.device)


def _spread(mask: Tensor, places: tuple[Tensor, Tensor], chunks: list[Tensor]) -> Tensor:
    values = torch.cat(chunks)
    return torch.zeros(mask.shape, dtype=values.dtype, device=values.device).index_put(places, values)
