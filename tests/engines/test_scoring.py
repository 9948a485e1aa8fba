"""Log-probs and entropies without logits of everything, and layers that are computed twice: the same gradients in less memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from helpers.models import FAMILIES, tiny_model
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from complementary_rl.engines.local import scoring
from complementary_rl.engines.local.decoder import Decoder
from complementary_rl.engines.local.microbatch import MicroBatch
from complementary_rl.engines.local.recompute import recompute_layers
from complementary_rl.engines.local.scoring import score
from complementary_rl.errors import UserError

VOCABULARY = 211
CHUNK = 40


class RowsOfLogits(TorchDispatchMode):
    """The most rows of any tensor over the vocabulary that an operation makes."""

    most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor) and tensor.ndim and tensor.shape[-1] == VOCABULARY:
                self.most = max(self.most, tensor.numel() // VOCABULARY)
        return made


@contextmanager
def bytes_kept() -> Iterator[list[int]]:
    """Bytes that autograd keeps for the backward pass, a storage counted once."""
    storages: dict[int, int] = {}
    total = [0]

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        total[0] = sum(storages.values())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield total


def batch(rows: int = 6, length: int = 32, *, seed: int = 0) -> MicroBatch:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(rows, length, generator=generator) < 0.7
    mask[:, 0] = False
    zeros = torch.zeros(rows)
    temperatures = 0.5 + torch.rand(rows, generator=generator)
    ids = torch.randint(VOCABULARY, (rows, length), generator=generator)
    return MicroBatch(ids, mask, torch.zeros(rows, length), zeros, zeros, temperatures, rows * length, [])


def decoder(family: str = "llama") -> Decoder:
    return Decoder(tiny_model(family, vocab_size=VOCABULARY))


def objective(logprobs: Tensor, entropies: Tensor) -> Tensor:
    weights = torch.linspace(-1, 1, logprobs.numel()).reshape(logprobs.shape)
    return (weights * logprobs).sum() + 0.3 * (weights.flip(1) * entropies).sum()


def plain(model: Any, read: MicroBatch) -> tuple[Tensor, Tensor]:
    """With logits of every token."""
    logits = model(input_ids=read.token_ids).logits[:, :-1] / read.temperatures[:, None, None]
    distribution = torch.log_softmax(logits, -1)
    chosen = distribution.gather(2, read.token_ids[:, 1:, None]).squeeze(2)
    entropies = -(distribution.exp() * distribution).sum(-1)
    return tuple(torch.nn.functional.pad(each * read.mask[:, 1:], (1, 0)) for each in (chosen, entropies))


def gradients(model: Any) -> dict[str, Tensor]:
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    for name, gradient in theirs.items():
        assert (ours[name] - gradient).abs().max() <= 1e-5 * gradient.abs().max(), name


@pytest.mark.parametrize("family", FAMILIES)
def test_chunks_give_the_values_and_gradients_of_whole_logits(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "LOGIT_ELEMENTS", CHUNK * VOCABULARY)
    ours, model, read = decoder(family), tiny_model(family, vocab_size=VOCABULARY), batch()
    scored, expected = score(ours, read, entropy=True), plain(model, read)
    for value, wanted in zip(scored, expected, strict=True):
        assert value is not None and torch.allclose(value, wanted, rtol=1e-5, atol=1e-5)
    objective(*scored).backward()  # type: ignore[arg-type]
    objective(*expected).backward()
    assert_same(gradients(ours.model), gradients(model))


def test_no_more_than_a_chunk_of_logits_is_ever_made_or_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, read = decoder(), batch()
    assert ours.config.hidden_size < CHUNK < read.mask.sum() / 3
    with RowsOfLogits() as watched, bytes_kept() as kept_whole:
        objective(*score(ours, read, entropy=True)).backward()  # type: ignore[arg-type]
    assert watched.most == read.mask.sum(), "the watch does not see logits"
    monkeypatch.setattr(scoring, "LOGIT_ELEMENTS", CHUNK * VOCABULARY)
    with RowsOfLogits() as watched, bytes_kept() as kept:
        objective(*score(ours, read, entropy=True)).backward()  # type: ignore[arg-type]
    assert watched.most == CHUNK
    assert kept_whole[0] - kept[0] > 4 * VOCABULARY * int(read.mask.sum())


@pytest.mark.parametrize("family", FAMILIES)
def test_recomputed_layers_give_the_same_gradient_and_keep_less(family: str) -> None:
    kept, ours, read = {}, decoder(family), batch(length=64)
    whole: dict[str, Tensor] = {}
    for recompute in (False, True):
        if recompute:
            recompute_layers(ours.model)
        ours.model.zero_grad()
        with bytes_kept() as measured:
            loss = objective(*score(ours, read, entropy=True))  # type: ignore[arg-type]
        kept[recompute] = measured[0]
        loss.backward()
        if recompute:
            assert_same(gradients(ours.model), whole)
        whole = {name: gradient.clone() for name, gradient in gradients(ours.model).items()}
    assert kept[True] < 0.6 * kept[False]


def test_models_whose_layers_cannot_be_recomputed_are_refused() -> None:
    class Bare(torch.nn.Module):
        class config:
            model_type = "bare"

    with pytest.raises(UserError, match="gradient_checkpointing = false"):
        recompute_layers(Bare())
