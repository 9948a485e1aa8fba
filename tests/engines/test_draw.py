"""Drawing tokens: the right distribution, and the log-probs of the distribution really drawn from."""

import math

import numpy as np
import pytest
import torch

from complementary_rl.engines.local.draw import draw, truncate
from complementary_rl.engines.protocol import SamplingParams

LOGITS = torch.log(torch.tensor([[0.1, 0.4, 0.2, 0.3]]))


def drawn(uniforms: list[float], logits: torch.Tensor = LOGITS, **params: float) -> tuple[list[int], list[float]]:
    u = torch.tensor(uniforms, dtype=torch.float64)
    tokens, logprobs = draw(logits.expand(len(uniforms), -1), u, SamplingParams(**params))
    return tokens.tolist(), logprobs.tolist()


def test_inverse_cdf_by_hand() -> None:
    tokens, logprobs = drawn([0.0, 0.0999, 0.1001, 0.4999, 0.5001, 0.6999, 0.7001, 1 - 2**-53])
    assert tokens == [0, 0, 1, 1, 2, 2, 3, 3]
    assert logprobs == pytest.approx([math.log(p) for p in (0.1, 0.1, 0.4, 0.4, 0.2, 0.2, 0.3, 0.3)], abs=1e-6)


def test_temperature_changes_the_recorded_distribution() -> None:
    powers = [0.1**2, 0.4**2, 0.2**2, 0.3**2]
    tokens, logprobs = drawn([0.0, 0.2, 0.5, 0.9], temperature=0.5)
    assert logprobs == pytest.approx([math.log(powers[token] / sum(powers)) for token in tokens], abs=1e-6)


def test_top_k_and_top_p_renormalise() -> None:
    assert drawn([0.0, 0.99], top_k=2)[0] == [1, 3]
    assert drawn([0.0, 0.99], top_k=2)[1] == pytest.approx([math.log(4 / 7), math.log(3 / 7)], abs=1e-6)
    assert drawn([0.0, 0.5, 0.99], top_p=0.75)[0] == [1, 2, 3]
    assert drawn([0.0], top_p=0.75)[1] == pytest.approx([math.log(4 / 9)], abs=1e-6)
    assert drawn([0.0, 0.99], top_p=0.4)[0] == [1, 1]
    assert drawn([0.3], top_p=0.01) == ([1], [0.0])


def test_top_p_is_of_what_top_k_left() -> None:
    kept = truncate(torch.softmax(LOGITS, -1), top_k=3, top_p=0.5)
    assert kept.tolist()[0] == pytest.approx([0, 4 / 7, 0, 3 / 7])


def test_truncation_breaks_ties_to_the_lower_id() -> None:
    assert truncate(torch.full((1, 4), 0.25), top_k=2, top_p=1.0).tolist() == [[0.5, 0.5, 0.0, 0.0]]


def test_greedy_records_the_logprob_of_temperature_one() -> None:
    assert drawn([0.999], temperature=0) == ([1], pytest.approx([math.log(0.4)], abs=1e-6))


def test_frequencies_match_the_distribution() -> None:
    logits = torch.randn(1, 50, generator=torch.Generator().manual_seed(3)) * 2
    uniforms = np.random.default_rng(0).random(200_000)
    tokens, _ = drawn(uniforms.tolist(), logits, temperature=0.8, top_p=0.9)
    expected = truncate(torch.softmax(logits / 0.8, -1), top_k=0, top_p=0.9)[0].numpy()
    counts = np.bincount(tokens, minlength=50)
    assert counts[expected == 0].sum() == 0
    kept = expected > 0
    chi_square = ((counts - expected * len(tokens)) ** 2)[kept] / (expected * len(tokens))[kept]
    assert chi_square.sum() < 2 * kept.sum()


def test_a_large_vocabulary_keeps_the_share_of_its_tail() -> None:
    logits = torch.zeros(1, 200_000)
    tokens, logprobs = drawn([0.25, 0.999_999], logits)
    assert tokens == [50_000, 199_999]
    assert logprobs == pytest.approx([-math.log(200_000)] * 2, abs=1e-4)
