"""Two models over one frozen base: the same tensors, and nothing else in common."""

import asyncio
from typing import Any

import pytest
import torch
from helpers.models import STOP_ID, tiny_model, tiny_tokenizer

from complementary_rl.engines.local.engine import LocalEngine
from complementary_rl.engines.local.recompute import recompute_layers
from complementary_rl.engines.local.shared_base import share_base
from complementary_rl.engines.protocol import LossTerm, OptimParams, SampleRequest, SamplingParams, TrainingSample
from complementary_rl.objectives.distillation import NextTokenLoss

peft = pytest.importorskip("peft")

IDS = torch.tensor([[5, 9, 17, 40, 6]])
ROUNDS = 4


def with_adapters(model: Any, seed: int, *, rank: int = 4, targets: Any = "all-linear") -> Any:
    """Adapters that already do something."""
    peft.inject_adapter_in_model(peft.LoraConfig(r=rank, target_modules=targets, task_type="CAUSAL_LM"), model)
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = 0.2 * torch.randn(parameter.shape, generator=generator)
    return model


def pair(family: str = "llama") -> tuple[Any, Any]:
    """Actor and extractor with adapters of different shape over one base."""
    actor = with_adapters(tiny_model(family), 1)
    return actor, with_adapters(share_base(actor), 2, rank=2, targets=["q_proj", "v_proj"])


def engine(name: str, model: Any) -> LocalEngine:
    return LocalEngine(name, model, tiny_tokenizer(), stop_ids=frozenset({STOP_ID}), max_context=256)


async def life(engine: LocalEngine, shift: int) -> list[Any]:
    """What an engine says and weighs over some rounds of sampling and training."""
    ids = [tuple(5 + (i * 7 + shift + j) % 100 for i in range(12)) for j in range(4)]
    term = LossTerm("x", [TrainingSample(x, (False, *[True] * 11), (0.0,) * 12, 1.0, 1 / 44) for x in ids], NextTokenLoss())
    seen: list[Any] = []
    for step in range(ROUNDS):
        requests = [SampleRequest(str(i), (5, 6, 7), 10 * step + i) for i in range(4)]
        seen += [(g.token_ids, g.logprobs) for g in await engine.sample(requests, SamplingParams(max_new_tokens=8))]
        seen.append(await engine.update([term], OptimParams(lr=1e-2)))
        await engine.publish()
    return seen


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_the_base_is_the_same_tensors_and_the_start_model(family: str) -> None:
    actor = with_adapters(tiny_model(family), 1)
    base = share_base(actor)
    assert list(base.state_dict()) == list(tiny_model(family).state_dict())
    assert {id(p) for p in base.parameters()} == {id(p) for p in actor.parameters() if not p.requires_grad}
    with torch.no_grad():
        start = tiny_model(family)(IDS).logits
        assert torch.equal(base(IDS).logits, start)
        first = actor(IDS).logits
        second = with_adapters(base, 2, rank=2)(IDS).logits
        assert torch.equal(actor(IDS).logits, first), "adapters of one model reached the other"
    assert not torch.allclose(first, start) and not torch.allclose(second, start) and not torch.allclose(first, second)


def test_training_one_leaves_the_other_alone() -> None:
    actor, extractor = pair()
    theirs = {name: p.detach().clone() for name, p in extractor.named_parameters()}
    with torch.no_grad():
        before, own = extractor(IDS).logits, actor(IDS).logits
    trained = engine("actor", actor)
    asyncio.run(life(trained, 0))
    trained.close()
    with torch.no_grad():
        assert torch.equal(extractor(IDS).logits, before)
        assert not torch.allclose(actor(IDS).logits, own)
    assert all(torch.equal(p, theirs[name]) for name, p in extractor.named_parameters())


def test_side_by_side_in_two_threads_they_do_as_each_does_alone() -> None:
    alone = []
    for place, shift in enumerate((0, 31)):
        single = engine("alone", pair()[place])
        alone.append(asyncio.run(life(single, shift)))
        single.close()
    actor, extractor = (engine(name, model) for name, model in zip(("actor", "extractor"), pair(), strict=True))

    async def both() -> list[list[Any]]:
        return await asyncio.gather(life(actor, 0), life(extractor, 31))

    assert asyncio.run(both()) == alone
    actor.close()
    extractor.close()


def test_the_other_model_decides_for_itself_whether_to_recompute() -> None:
    actor = with_adapters(tiny_model(), 1)
    recompute_layers(actor)
    assert not any("forward" in vars(module) for module in share_base(actor).modules())
    assert any("forward" in vars(module) for module in actor.modules())


def test_weights_that_are_trained_cannot_be_shared() -> None:
    with pytest.raises(ValueError, match="only if all that is trained are adapters"):
        share_base(tiny_model())
    partly = with_adapters(tiny_model(), 1)
    partly.get_input_embeddings().weight.requires_grad_(True)
    with pytest.raises(ValueError, match="only if all that is trained are adapters"):
        share_base(partly)
