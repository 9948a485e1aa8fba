"""One optimiser step from loss terms: micro-batches, accumulated gradients, global-norm clip, non-finite guard, AdamW."""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.optim import AdamW

from complementary_rl.engines.local.decoder import Decoder
from complementary_rl.engines.local.microbatch import MicroBatch, collate, trained_length
from complementary_rl.engines.local.ranks import Alone, Ranks, Sums
from complementary_rl.engines.local.recompute import recompute_layers
from complementary_rl.engines.local.scoring import Scorer
from complementary_rl.engines.protocol import Loss, LossInputs, LossOutput, LossTerm, OptimParams, TrainingSample
from complementary_rl.types import Metrics

SCORING_TOKENS = 16_384
"""Token budget (padding included) of a forward pass without gradient."""


class Trainer:
    """Trains `decoder`, whose parameters are kept in float32; with a narrower `compute_dtype` the forward pass is autocast.

    `reference` is the frozen start model, for losses that ask for its log-probs. `gradient_checkpointing` recomputes activations in the
    backward pass; raises UserError for models that cannot. With several `ranks` each has a trainer of its own, and all make every call
    together.
    """

    def __init__(
        self,
        decoder: Decoder,
        *,
        compute_dtype: torch.dtype,
        reference: Decoder | None,
        max_context: int,
        gradient_checkpointing: bool = False,
        ranks: Ranks | None = None,
    ) -> None:
        if gradient_checkpointing:
            recompute_layers(decoder.model)
        self.decoder = decoder
        self.reference = reference
        self.max_context = max_context
        self.ranks = ranks or Alone()
        self._compute_dtype = compute_dtype
        self._scorer = self._prepared(decoder)
        self._reference_scorer = None if reference is None else self._prepared(reference)
        self._parameters = [parameter for parameter in decoder.model.parameters() if parameter.requires_grad]
        self.optimizer = AdamW(self._parameter_groups(), lr=0.0, fused=True)

    def update(self, terms: Sequence[LossTerm], optim: OptimParams) -> Metrics:
        """One AdamW step on Σ coefficient · loss over the terms.

        Metrics: `<term>/loss` (without coefficient), `<term>/<name>` for each of the loss's sums, `grad_norm` before clipping,
        `tokens` read (without padding), `skipped`: 1 if weights and optimiser were left as they are, because the loss or the
        gradient was not finite or because no sample had a trained token. Raises ValueError for samples that cannot be trained on.
        """
        for term in terms:
            self._check(term.samples)
            if term.loss.needs_reference and self.reference is None:
                raise ValueError(
                    f"the loss of term {term.name!r} needs reference log-probs; make the engine with keep_reference=True"
                )
        self.optimizer.zero_grad(set_to_none=True)
        try:
            metrics = self._accumulate(terms, optim.max_tokens_per_microbatch)
            metrics |= self._step(optim, finite=all(map(math.isfinite, metrics.values())), trained=metrics["tokens"] > 0)
        finally:
            self.optimizer.zero_grad(set_to_none=True)
        return metrics

    @torch.no_grad()
    def logprobs(self, samples: Sequence[TrainingSample]) -> list[Tensor]:
        """Log-probs of each sample's trained tokens, [T] on the CPU, 0 elsewhere; of several ranks, 0 also in what the others computed."""
        self._check(samples)
        results = [torch.zeros(len(sample.token_ids)) for sample in samples]
        for indices in self.ranks.share(samples, SCORING_TOKENS):
            with self._autocast():
                logprobs, _ = self._scorer(self._collate(samples, indices))
            for index, row in zip(indices, logprobs.cpu(), strict=bool(indices)):
                kept = trained_length(samples[index])
                results[index][:kept] = row[:kept]
        return results

    def _parameter_groups(self) -> list[dict[str, Any]]:
        table = self.decoder.model.get_input_embeddings().weight
        embedding = [parameter for parameter in self._parameters if parameter is table]
        others = [parameter for parameter in self._parameters if parameter is not table]
        return [{"params": group, "embeds": group is embedding} for group in (others, embedding) if group]

    def _prepared(self, decoder: Decoder) -> Scorer:
        scorer = Scorer(decoder)
        self.ranks.prepare(scorer, decoder.layers)
        return scorer

    def _accumulate(self, terms: Sequence[LossTerm], max_tokens: int) -> Metrics:
        sums = Sums({"tokens": 0.0} | {f"{term.name}/loss": 0.0 for term in terms})
        for term in terms:
            for indices in self.ranks.share(term.samples, max_tokens):
                batch = self._collate(term.samples, indices)
                if indices:
                    output = self._loss(term.loss, batch)
                    (output.loss * term.coefficient).backward()  # type: ignore[no-untyped-call]
                    sums.add(term.name, output, batch.tokens)
                else:
                    logprobs, *_ = self._scored(term.loss, batch)
                    (logprobs.sum() * 0.0).backward()  # type: ignore[no-untyped-call]
        return self.ranks.total(sums).metrics()

    def _loss(self, loss: Loss, batch: MicroBatch) -> LossOutput:
        logprobs, entropy, reference = self._scored(loss, batch)
        return loss(LossInputs(logprobs, batch.old_logprobs, batch.mask, batch.advantages, batch.weights, reference, entropy))

    def _scored(self, loss: Loss, batch: MicroBatch) -> tuple[Tensor, Tensor | None, Tensor | None]:
        with self._autocast():
            logprobs, entropy = self._scorer(batch, entropy=loss.needs_entropy)
            reference = None
            if loss.needs_reference:
                assert self._reference_scorer is not None
                with torch.no_grad():
                    reference, _ = self._reference_scorer(batch)
        return logprobs, entropy, reference

    def _step(self, optim: OptimParams, *, finite: bool, trained: bool) -> Metrics:
        if not trained:
            return {"grad_norm": 0.0, "skipped": 1.0}
        norm = self.ranks.whole(torch.nn.utils.clip_grad_norm_(self._parameters, optim.max_grad_norm)).item()
        if not finite or not math.isfinite(norm):
            return {"grad_norm": norm, "skipped": 1.0}
        for group in self.optimizer.param_groups:
            lr = optim.lr if optim.embedding_lr is None or not group["embeds"] else optim.embedding_lr
            group.update(lr=lr, weight_decay=optim.weight_decay, betas=optim.betas)
        self.optimizer.step()
        return {"grad_norm": norm, "skipped": 0.0}

    def _check(self, samples: Sequence[TrainingSample]) -> None:
        for sample in samples:
            length = len(sample.token_ids)
            if not length == len(sample.mask) == len(sample.logprobs):
                raise ValueError(
                    "token_ids, mask and logprobs of a sample differ in length: "
                    f"{length}, {len(sample.mask)}, {len(sample.logprobs)}"
                )
            if sample.allowed and len(sample.allowed) != length:
                raise ValueError(f"a sample has {length} tokens, and what was allowed is told of {len(sample.allowed)}")
            if length > self.max_context:
                raise ValueError(f"a sample has {length} tokens, the model's context holds {self.max_context}")
            if any(sample.mask) and sample.mask[0]:
                raise ValueError("a sample's first token is marked as trained, but nothing comes before it to predict it from")
            if sample.temperature <= 0:
                raise ValueError(f"a sample has temperature {sample.temperature}; greedy generations have no distribution to train")

    def _collate(self, samples: Sequence[TrainingSample], indices: Sequence[int]) -> MicroBatch:
        # To take part in a pass with nothing of one's own, the shortest sample will do.
        chosen = [samples[index] for index in indices] or [min(filter(trained_length, samples), key=trained_length)]
        return collate(chosen, self.decoder.device)

    def _autocast(self) -> AbstractContextManager[None]:
        narrow = self._compute_dtype != torch.float32
        return torch.autocast(self.decoder.device.type, dtype=self._compute_dtype if narrow else torch.bfloat16, enabled=narrow)
