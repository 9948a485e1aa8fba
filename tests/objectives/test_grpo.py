"""Eq 5 against hand-computed numbers and against autograd of the plain formula, token by token."""

from dataclasses import replace
from math import exp, log

import pytest
import torch
from helpers.losses import metrics, random_inputs, value_and_gradient

from complementary_rl.engines.protocol import LossInputs
from complementary_rl.objectives.grpo import GrpoLoss

FORMS = ["sequence", "sequence_mean", "token"]


def one_sequence(ratios: list[float], advantage: float, weight: float = 1.0) -> LossInputs:
    """One sequence: a prompt token, then sampled tokens with these ratios."""
    old = torch.full((1, len(ratios) + 1), -1.0, dtype=torch.float64)
    new = old + torch.tensor([0.0, *map(log, ratios)], dtype=torch.float64)
    mask = torch.tensor([[False] + [True] * len(ratios)])
    return LossInputs(
        new.requires_grad_(), old, mask, torch.tensor([advantage], dtype=torch.float64), torch.tensor([weight], dtype=torch.float64)
    )


def plain_loss(form: str, inputs: LossInputs, epsilon: float) -> torch.Tensor:
    """Eq 5 written out with Python loops over what was sampled."""
    total = torch.zeros((), dtype=torch.float64)
    for row in range(len(inputs.advantages)):
        advantage, weight = inputs.advantages[row], inputs.weights[row]
        logs = [inputs.logprobs[row, t] - inputs.old_logprobs[row, t] for t in range(inputs.mask.shape[1]) if inputs.mask[row, t]]
        exponents = {"token": logs, "sequence_mean": [sum(logs) / len(logs)], "sequence": [sum(logs)]}[form]
        ratios = [exponent.exp() for exponent in exponents]
        for ratio in ratios:
            clipped = torch.clip(ratio, 1 - epsilon, 1 + epsilon)
            total = total - weight * torch.min(ratio * advantage, clipped * advantage) / len(ratios)
    return total


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(5))
def test_loss_and_gradient_equal_the_plain_formula(form, seed):
    inputs = random_inputs(seed)
    loss, gradient = value_and_gradient(GrpoLoss(form), inputs)
    plain = plain_loss(form, inputs, 0.2)
    (expected,) = torch.autograd.grad(plain, inputs.logprobs)
    assert loss == pytest.approx(plain.item())
    torch.testing.assert_close(gradient, expected)
    assert (gradient[~inputs.mask] == 0).all()


@pytest.mark.parametrize(("form", "ratio"), [("sequence", 1.1 * 1.05), ("sequence_mean", (1.1 * 1.05) ** 0.5), ("token", 1.075)])
def test_the_ratio_of_a_policy_that_has_moved_is_not_one(form, ratio):
    inputs = one_sequence([1.1, 1.05], advantage=2.0, weight=0.25)
    assert metrics(GrpoLoss(form), inputs)["ratio"] == pytest.approx(ratio)
    assert value_and_gradient(GrpoLoss(form), inputs)[0] == pytest.approx(-0.25 * 2.0 * ratio)


@pytest.mark.parametrize("form", FORMS)
def test_on_policy_the_gradient_is_reinforce(form):
    inputs = one_sequence([1.0, 1.0], advantage=2.0, weight=0.25)
    loss, gradient = value_and_gradient(GrpoLoss(form), inputs)
    share = 1.0 if form == "sequence" else 0.5
    assert loss == pytest.approx(-0.5)
    assert gradient.tolist() == [[0, pytest.approx(-0.5 * share), pytest.approx(-0.5 * share)]]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("ratio", "advantage", "objective", "clipped"),
    [
        (1.5, 1.0, 1.2, True),
        (0.5, 1.0, 0.5, False),
        (1.5, -1.0, -1.5, False),
        (0.5, -1.0, -0.8, True),
        (1.1, 1.0, 1.1, False),
    ],
)
def test_the_clip_stops_what_went_far_enough_and_nothing_else(form, ratio, advantage, objective, clipped):
    inputs = one_sequence([ratio], advantage)
    loss, gradient = value_and_gradient(GrpoLoss(form, clip_epsilon=0.2), inputs)
    assert loss == pytest.approx(-objective)
    assert bool((gradient == 0).all()) is clipped
    assert metrics(GrpoLoss(form), inputs)["clip_share"] == float(clipped)


def test_token_ratios_clip_token_by_token():
    inputs = one_sequence([1.5, 1.1], advantage=1.0)
    _, gradient = value_and_gradient(GrpoLoss("token"), inputs)
    assert gradient.tolist() == [[0, 0, pytest.approx(-0.55)]]
    assert metrics(GrpoLoss("token"), inputs)["clip_share"] == 0.5


def test_long_and_short_episodes_weigh_the_same_with_token_ratios():
    short, _ = value_and_gradient(GrpoLoss("token"), one_sequence([1.1], 1.0))
    long, _ = value_and_gradient(GrpoLoss("token"), one_sequence([1.1] * 9, 1.0))
    assert short == pytest.approx(long)


def test_a_runaway_ratio_is_clamped_and_counted():
    inputs = one_sequence([exp(30)] * 40, advantage=-1.0)
    loss, gradient = value_and_gradient(GrpoLoss("sequence", log_ratio_clamp=5.0), inputs)
    assert loss == pytest.approx(exp(5))
    assert (gradient == 0).all()
    watched = metrics(GrpoLoss("sequence", log_ratio_clamp=5.0), inputs)
    assert watched["clamp_share"] == 1
    assert watched["approx_kl"] == pytest.approx(exp(5) - 1 - 5)
    assert metrics(GrpoLoss("sequence"), one_sequence([1.1], 1.0))["clamp_share"] == 0


def test_approximate_kl_by_hand():
    watched = metrics(GrpoLoss("sequence"), one_sequence([1.2, 0.9], advantage=1.0))
    assert watched["approx_kl"] == pytest.approx(((1.2 - 1 - log(1.2)) + (0.9 - 1 - log(0.9))) / 2)


@pytest.mark.parametrize("form", FORMS)
def test_micro_batches_add_up(form):
    inputs = random_inputs(3)
    loss = GrpoLoss(form)
    whole, gradient = value_and_gradient(loss, inputs)
    rows = [
        LossInputs(
            inputs.logprobs[i : i + 1].detach().requires_grad_(),
            inputs.old_logprobs[i : i + 1],
            inputs.mask[i : i + 1],
            inputs.advantages[i : i + 1],
            inputs.weights[i : i + 1],
        )
        for i in range(4)
    ]
    parts = [value_and_gradient(loss, row) for row in rows]
    assert sum(value for value, _ in parts) == pytest.approx(whole)
    torch.testing.assert_close(torch.cat([part for _, part in parts]), gradient)
    sums = [loss(row).sums for row in rows]
    for name, (numerator, denominator) in loss(inputs).sums.items():
        assert sum(s[name][0] for s in sums) == pytest.approx(numerator)
        assert sum(s[name][1] for s in sums) == denominator


@pytest.mark.parametrize("form", FORMS)
def test_a_sequence_without_a_sampled_token_contributes_nothing(form):
    inputs = random_inputs(1)
    mask = inputs.mask.clone()
    mask[2] = False
    emptied = replace(inputs, mask=mask)
    loss, gradient = value_and_gradient(GrpoLoss(form), emptied)
    weights = inputs.weights.clone()
    weights[2] = 0
    assert loss == pytest.approx(value_and_gradient(GrpoLoss(form), replace(inputs, weights=weights))[0])
    assert (gradient[2] == 0).all()
    assert GrpoLoss("sequence")(emptied).sums["ratio"][1] == 3
