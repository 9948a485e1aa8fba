"""Eq 3 and Eq 7 against hand-computed numbers and against autograd of the plain formula."""

from dataclasses import replace

import pytest
import torch
from helpers.episodes import make_generation
from helpers.losses import metrics, random_inputs, value_and_gradient

from complementary_rl.engines.protocol import LossInputs
from complementary_rl.objectives.cispo import CispoLoss, CreditedGeneration, cispo_samples


def plain_loss(inputs: LossInputs, low: float, high: float, kl: float = 0.0, entropy: float = 0.0) -> torch.Tensor:
    """Eq 3 with its anchors, written out with Python loops over what was sampled."""
    total = torch.zeros((), dtype=torch.float64)
    for row, column in inputs.mask.nonzero().tolist():
        logprob, old = inputs.logprobs[row, column], inputs.old_logprobs[row, column]
        ratio = (logprob.exp() / old.exp()).detach()
        term = torch.clip(ratio, 1 - low, 1 + high) * inputs.advantages[row] * logprob
        if kl:
            reference = inputs.reference_logprobs[row, column].exp() / logprob.exp()
            term = term - kl * (reference - 1 - reference.log())
        if entropy:
            term = term + entropy * inputs.entropy[row, column]
        total = total - inputs.weights[row] * term
    return total


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("kl", "entropy"), [(0.0, 0.0), (0.1, 0.0), (0.0, 0.2), (0.1, 0.2)])
def test_loss_and_gradient_equal_the_plain_formula(seed, kl, entropy):
    inputs = random_inputs(seed)
    loss = CispoLoss(0.1, 0.2, kl_coefficient=kl, entropy_coefficient=entropy)
    value, gradient = value_and_gradient(loss, inputs)
    plain = plain_loss(inputs, 0.1, 0.2, kl, entropy)
    (expected,) = torch.autograd.grad(plain, inputs.logprobs, retain_graph=True)
    assert value == pytest.approx(plain.item())
    torch.testing.assert_close(gradient, expected)
    assert (gradient[~inputs.mask] == 0).all()
    if entropy:
        (to_entropy,) = torch.autograd.grad(loss(inputs).loss, inputs.entropy)
        (expected,) = torch.autograd.grad(plain, inputs.entropy)
        torch.testing.assert_close(to_entropy, expected)


def test_the_ratio_is_not_one_where_the_policy_has_moved_and_its_clip_keeps_the_gradient():
    old = torch.log(torch.tensor([[0.5, 0.5, 0.5, 0.5]], dtype=torch.float64))
    new = torch.log(torch.tensor([[0.5, 0.525, 0.8, 0.2]], dtype=torch.float64)).requires_grad_()
    mask = torch.tensor([[False, True, True, True]])
    one = torch.ones(1, dtype=torch.float64)
    inputs = LossInputs(new, old, mask, advantages=2 * one, weights=one / 3)
    _, gradient = value_and_gradient(CispoLoss(0.1, 0.1), inputs)
    assert gradient.tolist() == [[0, pytest.approx(-1.05 * 2 / 3), pytest.approx(-1.1 * 2 / 3), pytest.approx(-0.9 * 2 / 3)]]
    watched = metrics(CispoLoss(0.1, 0.1), inputs)
    assert watched["ratio"] == pytest.approx((1.05 + 1.6 + 0.4) / 3)
    assert watched["clip_share"] == pytest.approx(2 / 3)


def test_a_runaway_ratio_stays_finite():
    inputs = random_inputs(0)
    far = replace(inputs, old_logprobs=torch.where(inputs.mask, inputs.old_logprobs - 1e4, inputs.old_logprobs))
    value, gradient = value_and_gradient(CispoLoss(kl_coefficient=0.1), far)
    assert torch.isfinite(torch.tensor(value))
    assert torch.isfinite(gradient).all()
    assert all(map(torch.isfinite, map(torch.tensor, metrics(CispoLoss(), far).values())))


def test_optional_inputs_are_asked_for_only_with_their_anchor():
    assert (CispoLoss().needs_reference, CispoLoss().needs_entropy) == (False, False)
    assert CispoLoss(kl_coefficient=0.1).needs_reference
    assert CispoLoss(entropy_coefficient=0.1).needs_entropy
    bare = replace(random_inputs(0), reference_logprobs=None, entropy=None)
    assert set(CispoLoss()(bare).sums) == {"ratio", "clip_share", "approx_kl"}


def credited(id: str, credit: float, tokens: int, times: int = 0, last: int | None = None) -> CreditedGeneration:
    return CreditedGeneration(make_generation(tuple(range(tokens)), id=id), credit, times, last)


def test_samples_by_hand():
    batch = [credited("a", 1.0, 3), credited("b", -1.0, 5), credited("c", -1.0, 2, times=3, last=4), credited("d", 0.0, 6)]
    samples = cispo_samples(batch, retrain_gap=1, retrain_alpha=0.5, update=9)
    # Mean credit −1/4; "c" was trained three times: weight 4^−½.
    assert [sample.advantage for sample in samples] == pytest.approx([1.25, -0.75, -0.375, 0.25])
    assert [sample.weight for sample in samples] == pytest.approx([1 / 16] * 4)
    assert [sum(sample.mask) for sample in samples] == [3, 5, 2, 6]


def test_a_generation_trained_within_the_gap_has_no_say():
    batch = [credited("a", 1.0, 3, times=1, last=8), credited("b", -1.0, 3)]
    samples = cispo_samples(batch, retrain_gap=1, retrain_alpha=0.5, update=9)
    assert [sample.advantage for sample in samples] == [0.0, -1.0]


def test_the_mean_can_be_taken_with_the_weights_of_eq_7_so_that_nothing_is_left_over():
    batch = [credited("a", 1.0, 3, times=3, last=4), credited("b", 0.0, 5), credited("c", -1.0, 2, times=1, last=8)]
    samples = cispo_samples(batch, retrain_gap=1, retrain_alpha=0.5, update=9, weighted_mean=True)
    # Weights ½, 1 and 0 (within the gap); mean ½/1½ = ⅓.
    assert [sample.advantage for sample in samples] == pytest.approx([1 / 3, -1 / 3, 0.0])
    resting = [credited("a", 1.0, 3, times=1, last=9), credited("b", 0.0, 5, times=1, last=9)]
    assert [s.advantage for s in cispo_samples(resting, retrain_gap=1, retrain_alpha=0.5, update=9, weighted_mean=True)] == [0, 0]


def test_negative_advantages_can_be_scaled_down():
    samples = cispo_samples(
        [credited("a", 1.0, 3), credited("b", -1.0, 3)], retrain_gap=1, retrain_alpha=0.5, update=0, negative_scale=0.25
    )
    assert [sample.advantage for sample in samples] == [1.0, -0.25]


def test_the_advantage_is_not_divided_by_the_spread():
    samples = cispo_samples([credited("a", 0.5, 3), credited("b", 0.25, 3)], retrain_gap=1, retrain_alpha=0.5, update=0)
    assert [sample.advantage for sample in samples] == [0.125, -0.125]


def test_generations_without_tokens_count_in_the_mean_only():
    samples = cispo_samples([credited("a", 1.0, 4), credited("b", -1.0, 0)], retrain_gap=1, retrain_alpha=0.5, update=0)
    assert [(sample.advantage, sample.weight) for sample in samples] == [(1.0, 0.25)]
    assert cispo_samples([credited("b", -1.0, 0)], retrain_gap=1, retrain_alpha=0.5, update=0) == []


def test_one_generation_cannot_be_trained_twice_in_a_batch():
    with pytest.raises(AssertionError, match="distinct"):
        cispo_samples([credited("a", 1.0, 3), credited("a", -1.0, 3)], retrain_gap=1, retrain_alpha=0.5, update=0)
