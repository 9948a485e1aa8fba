"""One process that serves a model: the local `Sampler`, and weights that are exchanged in two steps."""

from collections.abc import Sequence
from pathlib import Path

import torch

from complementary_rl.chat.codec import ChatCodec
from complementary_rl.config import ModelConfig
from complementary_rl.engines.grammar import Grammars
from complementary_rl.engines.local.checkpoint import copy_parameters
from complementary_rl.engines.local.copies import freeze, save_model, trained_parameters
from complementary_rl.engines.local.decoder import Decoder
from complementary_rl.engines.local.loading import check_vocabulary, load_tokenizer, read_model
from complementary_rl.engines.local.sampler import Sampler
from complementary_rl.engines.protocol import SampleRequest, SamplingParams
from complementary_rl.engines.ray.arrays import Arrays, to_arrays, to_tensors
from complementary_rl.engines.ray.calls import where_am_i
from complementary_rl.engines.ray.trainer_rank import worker_device
from complementary_rl.models.names import resolve
from complementary_rl.types import Generation


class SamplerWorker:
    """A Ray actor that samples from a model."""

    def __init__(self, name: str, model: ModelConfig, *, max_context: int) -> None:
        self._name = name
        self._model = model
        self._max_context = max_context
        self._version = 0
        self._staged: tuple[int, dict[str, torch.Tensor]] | None = None

    def ping(self) -> tuple[str, int]:
        """Node and process, as a sign of life."""
        return where_am_i()

    def start(self) -> None:
        """Load the model. Raises UserError when it cannot be."""
        path = resolve(self._model.path)
        tokenizer = load_tokenizer(path)
        stop_ids = ChatCodec(tokenizer).stop_ids
        model = read_model(path, self._model, worker_device())
        names = trained_parameters(model)
        check_vocabulary(path, tokenizer, model)
        decoder = Decoder(freeze(model, getattr(torch, self._model.dtype)))
        grammars = Grammars(tokenizer, vocab_size=decoder.vocab_size, stop_ids=stop_ids)
        self._sampler = Sampler(decoder, name=self._name, stop_ids=stop_ids, max_context=self._max_context, grammars=grammars)
        served = dict(model.named_parameters())
        self._served = {name: served[name] for name in names}

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Generation]:
        """`Sampler.sample` with the weights committed last."""
        return self._sampler.sample(requests, params, self._version)

    def release(self, sessions: Sequence[str]) -> None:
        """Forget the caches of these sessions."""
        self._sampler.release(sessions)

    def stage(self, version: int, weights: Arrays) -> None:
        """Take weights in without serving them. Raises ValueError when they are not this model's."""
        tensors = to_tensors(weights)
        if {name: tensor.shape for name, tensor in tensors.items()} != {name: own.shape for name, own in self._served.items()}:
            raise ValueError(f"{self._name}: the weights of version {version} have other names or shapes than the model")
        self._staged = (version, tensors)

    def commit(self, version: int) -> None:
        """Serve the weights staged as `version` from now on."""
        if self._staged is None and version == self._version:
            return  # asked again after a fault elsewhere
        if self._staged is None or self._staged[0] != version:
            raise AssertionError(f"{self._name}: version {version} was never staged")
        copy_parameters(self._served, self._staged[1])
        self._sampler.forget()
        self._version, self._staged = version, None

    def weights(self) -> Arrays:
        """What is served."""
        return to_arrays(self._served)

    def export(self, directory: Path) -> None:
        """Write the model as a Hugging Face folder, or its adapters as one for PEFT."""
        save_model(self._sampler.decoder.model, directory)
