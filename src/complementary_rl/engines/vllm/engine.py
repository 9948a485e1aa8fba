"""An engine that trains where another one does, and samples from vLLM servers.

update, logprobs, save ──► trainer (any engine)
publish                ──► trainer.publish ─► trainer.export into a folder ─► the servers read it
sample                 ──► one completions request for each generation, all at once: the servers batch them
"""

import asyncio
import shutil
import tempfile
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from complementary_rl.config import VllmConfig
from complementary_rl.engines.local.worker import Worker
from complementary_rl.engines.protocol import Engine, LossTerm, OptimParams, SampleRequest, SamplingParams, TrainingSample
from complementary_rl.engines.vllm.gate import Gate
from complementary_rl.engines.vllm.serving import Serving
from complementary_rl.errors import InfrastructureError
from complementary_rl.types import Generation, Metrics

if TYPE_CHECKING:
    from torch import Tensor

_SEED_BITS = (1 << 63) - 1
_CALLS = 64
"""Calls of `sample` at a time; each may hold many requests."""


class VllmEngine:
    """Implements `engines.protocol.Engine` around `trainer`, whose own sampler only keeps what is published. It is closed with this.

    `stop_ids` end a generation. `adapters`: the trainer exports PEFT adapters, not whole models. What the servers had loaded does not
    matter: the trainer's weights are sent to them here, and by `load`. A publication that fails leaves the old version serving, and a
    number out: the next one that succeeds has the trainer's version.

    Draws follow the requests' seeds, but vLLM's log-probs depend on what is computed together, by rounding, unless it is started with
    VLLM_BATCH_INVARIANT=1: runs are not repeatable bit for bit. Raises UserError when a server cannot be used.
    """

    def __init__(self, trainer: Engine, settings: VllmConfig, *, stop_ids: frozenset[int], adapters: bool) -> None:
        self._trainer = trainer
        self._stop_ids = sorted(stop_ids)
        self.name = trainer.name
        self.tokenizer = trainer.tokenizer
        self.max_context = trainer.max_context
        self.compute_seconds = trainer.compute_seconds
        self._serving = Serving(self.name, settings, max_context=self.max_context, adapters=adapters)
        self._gate = Gate(self.name, timeout=settings.timeout + settings.restart_timeout)
        self._calls = ThreadPoolExecutor(_CALLS, thread_name_prefix=f"vllm-{self.name}")
        self._requests = ThreadPoolExecutor(settings.concurrency, thread_name_prefix=f"vllm-{self.name}-request")
        self._publishing = Worker(f"publishing-{self.name}")
        self._exchange = (settings.exchange or Path(tempfile.gettempdir())).absolute() / f"crl-{self.name}-{uuid.uuid4().hex[:8]}"
        self._folder: Path | None = None
        self._written = 0
        self.version = trainer.version
        try:
            self._serving.check()
            self._publishing.submit(self._serve).result()
        except BaseException:
            self.close()
            raise

    @property
    def trainer(self) -> Engine:
        """The engine that trains."""
        return self._trainer

    async def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Generation]:
        """See `Engine.sample`. Raises ValueError for requests with a schema: vLLM's log-probs would be those under the grammar."""
        for request in requests:
            if not request.prompt_ids or min(request.prompt_ids) < 0:
                raise ValueError(f"{self.name}: request {request.id!r} has an empty prompt or negative token ids")
            if request.schema is not None:
                raise ValueError(f"{self.name}: request {request.id!r} has a schema, which vLLM does not sample as it is trained")
        return await asyncio.wrap_future(self._calls.submit(self._sample, list(requests), params))

    def release(self, sessions: Sequence[str]) -> None:
        """See `Engine.release`: nothing, the servers' prefix caches forget by themselves."""

    async def logprobs(self, samples: Sequence[TrainingSample]) -> "list[Tensor]":
        """See `Engine.logprobs`."""
        return await self._trainer.logprobs(samples)

    async def update(self, terms: Sequence[LossTerm], optim: OptimParams) -> Metrics:
        """See `Engine.update`."""
        return await self._trainer.update(terms, optim)

    async def publish(self) -> int:
        """See `Engine.publish`. Waits for what is being sampled. Raises InfrastructureError or ValueError with the old version serving."""
        await self._trainer.publish()
        await self._publishing.run(self._timed_serve)
        return self.version

    def save(self, directory: Path) -> None:
        """See `Engine.save`. What is written is a checkpoint of the trainer, which can be loaded without any server."""
        self._trainer.save(directory)

    def load(self, directory: Path) -> None:
        """See `Engine.load`."""
        self._trainer.load(directory)
        self._publishing.submit(self._serve).result()

    def export(self, directory: Path) -> None:
        """See `Engine.export`."""
        self._trainer.export(directory)

    def take_events(self) -> list[str]:
        """See `Engine.take_events`."""
        return [*self._trainer.take_events(), *self._serving.take_events()]

    def close(self) -> None:
        """See `Engine.close`. The servers stay up, without the adapters that were loaded."""
        if self._publishing.closed:
            return
        self._publishing.close()
        self._calls.shutdown(wait=False, cancel_futures=True)
        self._requests.shutdown(wait=False, cancel_futures=True)
        self._serving.close()
        self._trainer.close()
        shutil.rmtree(self._exchange, ignore_errors=True)

    def _sample(self, requests: list[SampleRequest], params: SamplingParams) -> list[Generation]:
        with self._gate.sampling():
            version = self.version
            self._serving.look_for_restarts()
            futures = [self._requests.submit(self._generate, request, params, version) for request in requests]
            try:
                return [future.result() for future in futures]
            finally:
                for future in futures:
                    future.cancel()
                self.compute_seconds["sample"] = self._gate.busy_seconds

    def _generate(self, request: SampleRequest, params: SamplingParams, version: int) -> Generation:
        room = self.max_context - len(request.prompt_ids)
        most = min(params.max_new_tokens, room)
        tokens: tuple[int, ...] = ()
        logprobs: tuple[float, ...] = ()
        reason: Literal["stop", "length", "context"] = "context"
        if most > 0:
            choice = self._serving.complete(request.session or request.id, self._body(request, params, most))
            tokens, logprobs = self._read(choice, request)
            if tokens[-1] in self._stop_ids:
                reason = "stop"
            elif len(tokens) == params.max_new_tokens:
                reason = "length"
        return Generation(
            id=request.id,
            model=self.name,
            version=version,
            prompt_ids=request.prompt_ids,
            token_ids=tokens,
            logprobs=logprobs,
            stop_reason=reason,
            temperature=params.temperature,
        )

    def _body(self, request: SampleRequest, params: SamplingParams, most: int) -> dict[str, Any]:
        """What is left out, a server would take from the model's generation_config.json."""
        return {
            "prompt": request.prompt_ids,
            "seed": request.seed & _SEED_BITS,
            "max_tokens": most,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_k": params.top_k,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "stop_token_ids": self._stop_ids,
            "ignore_eos": True,
            "logprobs": 0,
            "return_token_ids": True,
        }

    def _read(self, choice: dict[str, Any], request: SampleRequest) -> tuple[tuple[int, ...], tuple[float, ...]]:
        tokens = tuple(choice.get("token_ids") or ())
        logprobs = tuple((choice.get("logprobs") or {}).get("token_logprobs") or ())
        if not tokens or len(tokens) != len(logprobs):
            raise InfrastructureError(
                f"{self.name}: vLLM answered {request.id!r} with {len(tokens)} token ids and {len(logprobs)} log-probs"
            )
        if None in logprobs:
            raise InfrastructureError(f"{self.name}: the model's logits are not finite; its weights or its dtype cannot be used")
        return tokens, logprobs

    def _timed_serve(self) -> None:
        start = time.perf_counter()
        try:
            self._serve()
        finally:
            self.compute_seconds["publish"] += time.perf_counter() - start

    def _serve(self) -> None:
        """Write what the trainer has published, and have the servers read it."""
        version = self._trainer.version
        self._written += 1
        folder = self._exchange / f"v{version}-{self._written}"
        self._trainer.export(folder)
        try:
            with self._gate.publishing():
                self._serving.publish(folder, version)
                self.version = version
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        old, self._folder = self._folder, folder
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)
