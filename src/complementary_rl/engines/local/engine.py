"""The in-process engine: one trainer copy and one sampler copy of the weights, one compute thread.

event loop ──jobs──> worker thread:  sample (sampler copy) · update, logprobs (trainer copy) · publish (trainer → sampler)
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from complementary_rl.engines.grammar import Grammars
from complementary_rl.engines.local.checkpoint import (
    copy_parameters,
    optimizer_tensors,
    read_state,
    read_tensors,
    restore_optimizer,
    write_directory,
    write_state,
)
from complementary_rl.engines.local.copies import describe, frozen_copy, save_model, trained_parameters
from complementary_rl.engines.local.decoder import Decoder
from complementary_rl.engines.local.sampler import Sampler
from complementary_rl.engines.local.trainer import Trainer
from complementary_rl.engines.local.worker import Worker
from complementary_rl.engines.protocol import LossTerm, OptimParams, SampleRequest, SamplingParams, TrainingSample
from complementary_rl.types import Generation, Metrics

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Result = TypeVar("Result")


class LocalEngine:
    """Implements `engines.protocol.Engine`.

    `model`, a PreTrainedModel on its device whose trainable parameters are float32, becomes the trainer's copy; the sampler's is kept in
    `dtype`. Frozen parameters that have it already, as those under LoRA adapters, are in memory once. What is trained is what is
    published and saved.

    Nothing draws random numbers but the sampler, and its draws come from the requests' seeds: there is no RNG state to save.

    One call of `sample` is one batch: callers with many requests should ask for them together.
    """

    def __init__(
        self,
        name: str,
        model: Any,
        tokenizer: "PreTrainedTokenizerBase",
        *,
        stop_ids: frozenset[int],
        max_context: int,
        dtype: torch.dtype = torch.float32,
        keep_reference: bool = False,
        gradient_checkpointing: bool = False,
    ) -> None:
        self.name = name
        self.tokenizer = tokenizer
        self.max_context = max_context
        self.version = 0
        self.compute_seconds = dict.fromkeys(("sample", "update", "logprobs", "publish"), 0.0)
        """Seconds the worker has computed so far, by phase."""
        served = Decoder(frozen_copy(model, dtype))
        reference = Decoder(frozen_copy(model, dtype)) if keep_reference else None
        grammars = Grammars(tokenizer, vocab_size=served.vocab_size, stop_ids=stop_ids)
        self._sampler = Sampler(served, name=name, stop_ids=stop_ids, max_context=max_context, grammars=grammars)
        self._trainer = Trainer(
            Decoder(model),
            compute_dtype=dtype,
            reference=reference,
            max_context=max_context,
            gradient_checkpointing=gradient_checkpointing,
        )
        self._unpublished = False
        self._worker = Worker(f"engine-{name}")

    @property
    def model(self) -> Any:
        """The trainer's PreTrainedModel."""
        return self._trainer.decoder.model

    async def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Generation]:
        """See `Engine.sample`. Greedy generations (temperature 0) record log-probs of temperature 1."""
        return await self._worker.run(lambda: self._timed("sample", lambda: self._sampler.sample(requests, params, self.version)))

    def release(self, sessions: Sequence[str]) -> None:
        """See `Engine.release`. Takes effect behind the calls already made."""
        if not self._worker.closed:
            self._worker.submit(lambda: self._sampler.release(sessions))

    async def logprobs(self, samples: Sequence[TrainingSample]) -> list[Tensor]:
        """See `Engine.logprobs`. Raises ValueError for samples that cannot be trained on."""
        return await self._worker.run(lambda: self._timed("logprobs", lambda: self._trainer.logprobs(samples)))

    async def update(self, terms: Sequence[LossTerm], optim: OptimParams) -> Metrics:
        """See `Engine.update` and `Trainer.update` for the metrics."""
        return await self._worker.run(lambda: self._timed("update", lambda: self._update(terms, optim)))

    async def publish(self) -> int:
        """See `Engine.publish`. All session caches are dropped."""
        return await self._worker.run(lambda: self._timed("publish", self._publish))

    def save(self, directory: Path) -> None:
        """See `Engine.save`. Waits for the calls already made. Raises OSError, leaving what was there, when it cannot."""
        self._worker.submit(lambda: write_directory(directory, self._write)).result()

    def load(self, directory: Path) -> None:
        """See `Engine.load`. On CheckpointError the engine is unchanged."""
        self._worker.submit(lambda: self._load(directory)).result()

    def export(self, directory: Path) -> None:
        """See `Engine.export`. The weights are those the sampler serves, in its dtype; of a model with adapters only these, for PEFT."""
        self._worker.submit(lambda: write_directory(directory, self._export)).result()

    def take_events(self) -> list[str]:
        """See `Engine.take_events`: nothing, there is no process but this one."""
        return []

    def close(self) -> None:
        """See `Engine.close`. Calls already made are finished first."""
        self._worker.close()

    def _update(self, terms: Sequence[LossTerm], optim: OptimParams) -> Metrics:
        metrics = self._trainer.update(terms, optim)
        self._unpublished |= not metrics["skipped"]
        return metrics

    def _publish(self) -> int:
        copy_parameters(self._served_parameters, self._trained_parameters)
        self._sampler.forget()
        self._unpublished = False
        self.version += 1
        return self.version

    def _write(self, directory: Path) -> None:
        groups = {"weights": self._trained_parameters, "optimizer": optimizer_tensors(self._trainer.optimizer)}
        if self._unpublished:
            groups["sampler"] = self._served_parameters
        write_state(directory, {"model": self._model_name, "version": self.version, "unpublished": self._unpublished}, **groups)

    def _load(self, directory: Path) -> None:
        state = read_state(directory, model=self._model_name)
        weights = read_tensors(directory, "weights", self._trained_parameters)
        optimizer = read_tensors(directory, "optimizer")
        served = read_tensors(directory, "sampler", self._served_parameters) if state["unpublished"] else weights
        copy_parameters(self._trained_parameters, weights)
        copy_parameters(self._served_parameters, served)
        restore_optimizer(self._trainer.optimizer, optimizer)
        self._sampler.forget()
        self._unpublished = state["unpublished"]
        self.version = state["version"]

    def _export(self, directory: Path) -> None:
        save_model(self._sampler.decoder.model, directory)
        self.tokenizer.save_pretrained(directory)

    def _timed(self, phase: str, job: Callable[[], Result]) -> Result:
        start = time.perf_counter()
        try:
            return job()
        finally:
            self.compute_seconds[phase] += time.perf_counter() - start

    @property
    def _model_name(self) -> str:
        return describe(self.name, self._trainer.decoder.model)

    @property
    def _trained_parameters(self) -> dict[str, Tensor]:
        return trained_parameters(self._trainer.decoder.model)

    @property
    def _served_parameters(self) -> dict[str, Tensor]:
        """Those of the sampler that the trainer changes."""
        served = dict(self._sampler.decoder.model.named_parameters())
        return {name: served[name] for name in self._trained_parameters}
