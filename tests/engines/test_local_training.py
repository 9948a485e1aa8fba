"""The trainer against a plain PyTorch loop, whatever the micro-batches; its guard; what losses are given."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from helpers.models import FAMILIES, VOCAB_SIZE, tiny_model
from torch import Tensor

from complementary_rl.engines.local import scoring
from complementary_rl.engines.local.decoder import Decoder
from complementary_rl.engines.local.microbatch import split_samples
from complementary_rl.engines.local.trainer import Trainer
from complementary_rl.engines.protocol import LossInputs, LossOutput, LossTerm, OptimParams, TrainingSample

OPTIM = OptimParams(lr=1e-2, weight_decay=0.1, max_grad_norm=0.5)


@dataclass
class PolicyGradient:
    """−Σ w Â Σ_t log π, and optionally − entropy + the reference's log-probs, all with hand-checkable sums."""

    needs_reference: bool = False
    needs_entropy: bool = False
    factor: float = 1.0

    def __call__(self, inputs: LossInputs) -> LossOutput:
        scale = (inputs.weights * inputs.advantages).unsqueeze(1)
        loss = -(scale * inputs.logprobs).sum() * self.factor
        sums = {"nll": (-float(inputs.logprobs.detach().sum()), float(inputs.mask.sum())), "never": (0.0, 0.0)}
        if inputs.entropy is not None:
            loss = loss - 0.1 * inputs.entropy.sum()
            sums["entropy"] = (float(inputs.entropy.detach().sum()), float(inputs.mask.sum()))
        if inputs.reference_logprobs is not None:
            gap = inputs.logprobs - inputs.reference_logprobs
            sums["gap"] = (float(gap.detach().abs().sum()), float(inputs.mask.sum()))
        return LossOutput(loss, sums)


def random_samples(count: int = 7, seed: int = 0) -> list[TrainingSample]:
    generator = np.random.default_rng(seed)
    samples = []
    for _ in range(count):
        length = int(generator.integers(4, 40))
        mask = generator.random(length) < 0.4
        mask[0], mask[1] = False, True
        ids = generator.integers(0, VOCAB_SIZE, length).tolist()
        logprobs = np.where(mask, -generator.random(length), 0.0).tolist()
        advantage, weight, temperature = generator.normal(), generator.random(), float(generator.uniform(0.5, 1.5))
        samples.append(TrainingSample(tuple(ids), tuple(mask.tolist()), tuple(logprobs), advantage, weight, temperature))
    return samples


def make_trainer(family: str = "llama", *, reference: bool = False, seed: int = 0) -> Trainer:
    start = Decoder(tiny_model(family, seed=seed)) if reference else None
    return Trainer(Decoder(tiny_model(family, seed=seed)), compute_dtype=torch.float32, reference=start, max_context=256)


def parameters(trainer: Trainer) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in trainer.decoder.model.named_parameters()}


def plain_scores(model: Any, sample: TrainingSample) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies of the trained tokens, one sequence at a time, straight from the model's own logits."""
    logits = model(input_ids=torch.tensor([sample.token_ids])).logits[0, :-1] / sample.temperature
    distribution = torch.log_softmax(logits, -1)
    mask = torch.tensor(sample.mask[1:])
    chosen = distribution.gather(1, torch.tensor(sample.token_ids[1:]).unsqueeze(1)).squeeze(1)
    return chosen[mask], -(distribution.exp() * distribution).sum(-1)[mask]


def plain_gradients(model: Any, terms: list[tuple[float, list[TrainingSample], bool]]) -> dict[str, Tensor]:
    """One sequence after another, no padding, the loss written out."""
    for coefficient, samples, with_entropy in terms:
        for sample in samples:
            logprobs, entropies = plain_scores(model, sample)
            loss = -sample.weight * sample.advantage * logprobs.sum() - (0.1 * entropies.sum() if with_entropy else 0.0)
            (coefficient * loss).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def record_gradients(trainer: Trainer) -> dict[str, Tensor]:
    """Filled with the (clipped) gradients of the next step."""
    gradients: dict[str, Tensor] = {}

    def record(*_: object) -> None:
        gradients.update({name: p.grad.clone() for name, p in trainer.decoder.model.named_parameters()})

    trainer.optimizer.register_step_pre_hook(record)
    return gradients


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("budget", [1, 64, 16_384])
def test_update_equals_a_plain_loop_whatever_the_token_budget(family: str, budget: int) -> None:
    trainer, plain = make_trainer(family), tiny_model(family)
    first, second = random_samples(7), random_samples(3, seed=1)
    terms = [LossTerm("rl", first, PolicyGradient(needs_entropy=True)), LossTerm("imitate", second, PolicyGradient(), 0.3)]
    gradients = record_gradients(trainer)
    metrics = trainer.update(terms, replace(OPTIM, max_tokens_per_microbatch=budget))
    expected = plain_gradients(plain, [(1.0, first, True), (0.3, second, False)])
    norm = torch.linalg.vector_norm(torch.cat([gradient.flatten() for gradient in expected.values()]))
    assert metrics["grad_norm"] == pytest.approx(float(norm), rel=1e-5)
    assert metrics["skipped"] == 0
    for name, gradient in expected.items():
        assert torch.allclose(gradients[name], gradient * (OPTIM.max_grad_norm / norm), atol=1e-6), name


@pytest.mark.parametrize("embedding_lr", [None, 3e-2])
def test_the_step_is_adamw_of_the_clipped_gradient(embedding_lr: float | None) -> None:
    trainer, plain = make_trainer(), tiny_model()
    embeddings = plain.get_input_embeddings().weight
    others = [parameter for parameter in plain.parameters() if parameter is not embeddings]
    groups = [{"params": others}, {"params": [embeddings], "lr": embedding_lr or OPTIM.lr}]
    optimizer = torch.optim.AdamW(groups, lr=OPTIM.lr, weight_decay=OPTIM.weight_decay, betas=OPTIM.betas)
    gradients = record_gradients(trainer)
    for seed in range(3):
        terms = [LossTerm("rl", random_samples(seed=seed), PolicyGradient())]
        trainer.update(terms, replace(OPTIM, embedding_lr=embedding_lr))
        for name, parameter in plain.named_parameters():
            parameter.grad = gradients[name]
        optimizer.step()
    for name, parameter in plain.named_parameters():
        assert torch.allclose(parameters(trainer)[name], parameter, atol=1e-6), name


def test_a_large_vocabulary_is_scored_in_chunks_with_the_same_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, chunked = make_trainer(), make_trainer()
    terms = [LossTerm("rl", random_samples(), PolicyGradient(needs_entropy=True))]
    largest = 0
    logits = chunked.decoder.logits

    def watching(states: Tensor) -> Tensor:
        nonlocal largest
        largest = max(largest, states.shape[0])
        return logits(states)

    monkeypatch.setattr(chunked.decoder, "logits", watching)
    monkeypatch.setattr(scoring, "LOGIT_ELEMENTS", 5 * VOCAB_SIZE)
    ours, theirs = record_gradients(chunked), record_gradients(whole)
    expected = whole.update(terms, OPTIM)
    assert chunked.update(terms, OPTIM) == pytest.approx(expected, rel=1e-5)
    assert largest == 5
    assert all(torch.allclose(ours[name], gradient, atol=1e-6) for name, gradient in theirs.items())


def test_logprobs_are_those_of_the_model_at_each_samples_temperature() -> None:
    trainer, samples = make_trainer(), random_samples()
    for sample, logprobs in zip(samples, trainer.logprobs(samples), strict=True):
        mask = torch.tensor(sample.mask)
        assert torch.allclose(logprobs[mask], plain_scores(trainer.decoder.model, sample)[0], atol=1e-5)
        assert torch.all(logprobs[~mask] == 0)
        assert not logprobs.requires_grad


def test_metrics_are_sums_over_the_terms_samples() -> None:
    trainer, samples = make_trainer(), random_samples()
    reported = trainer.update([LossTerm("rl", samples, PolicyGradient())], replace(OPTIM, max_tokens_per_microbatch=50))
    model = tiny_model()
    scores = [plain_scores(model, sample)[0].detach() for sample in samples]
    loss = -sum(s.weight * s.advantage * float(scored.sum()) for s, scored in zip(samples, scores, strict=True))
    assert reported["rl/loss"] == pytest.approx(loss, rel=1e-4)
    assert reported["rl/nll"] == pytest.approx(-float(torch.cat(scores).mean()), rel=1e-5)
    assert "rl/never" not in reported
    assert reported["tokens"] == sum(max(i for i, on in enumerate(s.mask) if on) + 1 for s in samples)


def test_reference_logprobs_are_those_of_the_frozen_start() -> None:
    trainer = make_trainer(reference=True)
    term = LossTerm("rl", random_samples(), PolicyGradient(needs_reference=True))
    assert trainer.update([term], OPTIM)["rl/gap"] == pytest.approx(0, abs=1e-6)
    assert trainer.update([term], OPTIM)["rl/gap"] > 1e-3
    with pytest.raises(ValueError, match="keep_reference=True"):
        make_trainer().update([term], OPTIM)


@pytest.fixture
def warm() -> Iterator[Trainer]:
    """A trainer whose AdamW state is not empty."""
    trainer = make_trainer()
    trainer.update([LossTerm("rl", random_samples(), PolicyGradient())], OPTIM)
    yield trainer


@pytest.mark.parametrize("poison", ["loss", "gradient", "advantage"])
def test_a_non_finite_step_leaves_weights_and_optimiser_alone(warm: Trainer, poison: str) -> None:
    class InfiniteGradient(PolicyGradient):
        def __call__(self, inputs: LossInputs) -> LossOutput:
            return LossOutput(
                (inputs.logprobs * inputs.mask).clamp(max=0).abs().sqrt().sub(1).sum() * 0 + _spike(inputs.logprobs), {}
            )

    samples = random_samples()
    losses: dict[str, Any] = {
        "loss": PolicyGradient(factor=math.inf),
        "gradient": InfiniteGradient(),
        "advantage": PolicyGradient(),
    }
    if poison == "advantage":
        samples[3] = replace(samples[3], advantage=math.nan)
    weights, state = parameters(warm), _optimizer_state(warm)
    metrics = warm.update([LossTerm("rl", samples, losses[poison])], replace(OPTIM, max_tokens_per_microbatch=64))
    assert metrics["skipped"] == 1
    assert all(torch.equal(parameters(warm)[name], weight) for name, weight in weights.items())
    assert all(torch.equal(_optimizer_state(warm)[name], tensor) for name, tensor in state.items())
    assert warm.update([LossTerm("rl", random_samples(), PolicyGradient())], OPTIM)["skipped"] == 0


def test_a_loss_that_raises_leaves_no_gradient_behind(warm: Trainer) -> None:
    class Raises(PolicyGradient):
        def __call__(self, inputs: LossInputs) -> LossOutput:
            raise RuntimeError("broken loss")

    good, twin = LossTerm("rl", random_samples(), PolicyGradient()), make_trainer()
    twin.update([good], OPTIM)
    with pytest.raises(RuntimeError, match="broken loss"):
        warm.update([good, LossTerm("bad", random_samples(), Raises())], OPTIM)
    warm.update([good], OPTIM)
    twin.update([good], OPTIM)
    assert all(torch.equal(parameters(warm)[name], weight) for name, weight in parameters(twin).items())


def test_nothing_to_train_on_is_a_skipped_step(warm: Trainer) -> None:
    weights = parameters(warm)
    untrained = replace(random_samples(1)[0], mask=(False,) * len(random_samples(1)[0].mask))
    for samples in ([], [untrained]):
        assert warm.update([LossTerm("rl", samples, PolicyGradient())], OPTIM)["skipped"] == 1
    assert all(torch.equal(parameters(warm)[name], weight) for name, weight in weights.items())


def test_microbatches_keep_the_budget_and_lose_nothing() -> None:
    samples = random_samples(40)
    groups = split_samples(samples, 100)
    assert sorted(index for group in groups for index in group) == list(range(40))
    for group in groups:
        longest = max(max(i for i, on in enumerate(samples[index].mask) if on) + 1 for index in group)
        assert len(group) == 1 or len(group) * longest <= 100


def test_samples_that_cannot_be_trained_on_are_refused() -> None:
    trainer, good = make_trainer(), random_samples(1)[0]
    bad = {
        "differ in length": replace(good, logprobs=good.logprobs[1:]),
        "nothing comes before it": replace(good, mask=(True, *good.mask[1:])),
        "greedy": replace(good, temperature=0.0),
        "context holds 256": TrainingSample((5,) * 300, (False,) * 299 + (True,), (0.0,) * 300, 1.0, 1.0),
    }
    for message, sample in bad.items():
        with pytest.raises(ValueError, match=message):
            trainer.update([LossTerm("rl", [sample], PolicyGradient())], OPTIM)


def _spike(logprobs: Tensor) -> Tensor:
    """0 with an infinite slope."""
    return (logprobs - logprobs.detach()).abs().sqrt().sum()


def _optimizer_state(trainer: Trainer) -> dict[str, Tensor]:
    state = trainer.optimizer.state_dict()["state"]
    return {f"{index}.{key}": value.clone() for index, named in state.items() for key, value in named.items()}
