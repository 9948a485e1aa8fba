"""The sampler against the trainer's forward pass, and its cache, batch and seeds against themselves."""

import asyncio
import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch
from helpers.models import FAMILIES, STOP_ID, VOCAB_SIZE, tiny_engine

from complementary_rl.engines.local import sampler as sampler_module
from complementary_rl.engines.local.engine import LocalEngine
from complementary_rl.engines.protocol import SampleRequest, SamplingParams, TrainingSample
from complementary_rl.errors import InfrastructureError
from complementary_rl.types import Generation, TokenIds


@pytest.fixture(params=FAMILIES)
def engine(request: pytest.FixtureRequest) -> Iterator[LocalEngine]:
    made = tiny_engine(request.param)
    yield made
    made.close()


@pytest.fixture
def llama() -> Iterator[LocalEngine]:
    made = tiny_engine()
    yield made
    made.close()


def sample(engine: LocalEngine, requests: Sequence[SampleRequest], **params: float) -> list[Generation]:
    return asyncio.run(engine.sample(requests, SamplingParams(**params)))


def random_ids(generator: np.random.Generator, low: int, high: int) -> TokenIds:
    return tuple(generator.integers(5, VOCAB_SIZE, generator.integers(low, high)).tolist())


def play(
    engine: LocalEngine, *, sessions: bool, turns: int = 4, episodes: int = 9, release: bool = False
) -> list[list[Generation]]:
    """Episodes with ragged prompts that leave one by one; new ids are appended between turns."""
    generator = np.random.default_rng(5)
    shared = random_ids(generator, 40, 41)
    histories = {f"e{i}": (shared if i % 2 else ()) + random_ids(generator, 2, 30) for i in range(episodes)}
    played: dict[str, list[Generation]] = {name: [] for name in histories}
    for turn in range(turns):
        requests = [
            SampleRequest(f"{name}/{turn}", ids, seed=100 * turn + int(name[1:]), session=name if sessions else None)
            for name, ids in histories.items()
        ]
        for name, generation in zip(list(histories), sample(engine, requests, max_new_tokens=6), strict=True):
            played[name].append(generation)
            histories[name] = generation.prompt_ids + generation.token_ids + random_ids(generator, 1, 9)
        gone = f"e{(2 * turn) % episodes}"
        histories.pop(gone)
        if release:
            engine.release([gone])
    return list(played.values())


def as_sample(turns: list[Generation]) -> TrainingSample:
    ids: list[int] = []
    mask: list[bool] = []
    logprobs: list[float] = []
    for generation in turns:
        new = generation.prompt_ids[len(ids) :]
        ids += [*new, *generation.token_ids]
        mask += [False] * len(new) + [True] * len(generation.token_ids)
        logprobs += [0.0] * len(new) + list(generation.logprobs)
    return TrainingSample(tuple(ids), tuple(mask), tuple(logprobs), 1.0, 1.0, turns[0].temperature)


def test_sampler_and_trainer_agree_over_a_multi_turn_episode(engine: LocalEngine) -> None:
    samples = [as_sample(turns) for turns in play(engine, sessions=True)]
    trained = asyncio.run(engine.logprobs(samples))
    for one, logprobs in zip(samples, trained, strict=True):
        assert logprobs.shape == (len(one.token_ids),)
        assert torch.allclose(logprobs, torch.tensor(one.logprobs), atol=1e-4)
    assert sum(sum(one.mask) for one in samples) > 60


def test_sessions_change_speed_never_results(engine: LocalEngine) -> None:
    with_cache, without = play(engine, sessions=True, release=True), play(engine, sessions=False)
    for ours, theirs in zip(with_cache, without, strict=True):
        assert [g.token_ids for g in ours] == [g.token_ids for g in theirs]
        for a, b in zip(ours, theirs, strict=True):
            assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4)


def test_a_session_rereads_only_what_is_new(llama: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    hidden_cached = llama._sampler.decoder.hidden_cached

    def counting(ids: torch.Tensor, *args: object) -> torch.Tensor:
        read.append(ids.numel())
        return hidden_cached(ids, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(llama._sampler.decoder, "hidden_cached", counting)
    first = sample(llama, [SampleRequest("a", tuple(range(5, 55)), 1, "s")], max_new_tokens=1)[0]
    sample(llama, [SampleRequest("b", (*first.prompt_ids, *first.token_ids, 7, 8), 2, "s")], max_new_tokens=1)
    changed = (*first.prompt_ids[:20], 9, 9)
    sample(llama, [SampleRequest("c", changed, 3, "s")], max_new_tokens=1)
    sample(llama, [SampleRequest("d", changed, 3, "s")], max_new_tokens=1)
    assert read == [50, 3, 2, 1]


def test_seeds_fix_the_draws_whatever_else_is_in_the_batch(llama: LocalEngine) -> None:
    generator = np.random.default_rng(0)
    requests = [SampleRequest(str(i), random_ids(generator, 3, 40), seed=i) for i in range(20)]
    together = sample(llama, requests, max_new_tokens=8)
    alone = [sample(llama, [request], max_new_tokens=8)[0] for request in requests[:5]]
    backwards = sample(llama, requests[::-1], max_new_tokens=3)[::-1]
    for i, generation in enumerate(alone):
        assert generation.token_ids == together[i].token_ids
        assert generation.token_ids[:3] == backwards[i].token_ids
    assert len({g.token_ids for g in together}) == 20


def test_history_of_the_cache_leaves_no_trace_in_the_bits(llama: LocalEngine) -> None:
    fresh = play(llama, sessions=True)
    sample(llama, [SampleRequest(str(i), tuple(range(5, 120)), i, session=f"long{i}") for i in range(40)], max_new_tokens=100)
    llama.release([*(f"long{i}" for i in range(40)), *(f"e{i}" for i in range(9))])
    assert play(llama, sessions=True) == fresh


def test_finished_rows_leave_and_results_stay_in_request_order(engine: LocalEngine) -> None:
    """Random stops make the batch shrink again and again; each row must equal the row sampled alone."""
    generator = np.random.default_rng(1)
    engine._sampler.stop_ids = frozenset(range(0, VOCAB_SIZE, 5))
    requests = [SampleRequest(str(i), random_ids(generator, 3, 20), seed=i, session=str(i)) for i in range(16)]
    batch = sample(engine, requests, max_new_tokens=24)
    assert len({len(g.token_ids) for g in batch}) > 3
    for request, generation in zip(requests, batch, strict=True):
        alone = sample(engine, [SampleRequest(request.id, request.prompt_ids, request.seed)], max_new_tokens=24)[0]
        assert generation.id == request.id
        assert generation.token_ids == alone.token_ids
        assert generation.logprobs == pytest.approx(alone.logprobs, abs=1e-4)


def test_stop_reasons(llama: LocalEngine) -> None:
    prompt = tuple(range(5, 20))
    stops = {g.stop_reason: g for seed in range(200) for g in sample(llama, [SampleRequest("x", prompt, seed)], max_new_tokens=4)}
    assert stops["stop"].token_ids[-1] == STOP_ID
    assert STOP_ID not in stops["stop"].token_ids[:-1]
    assert len(stops["length"].token_ids) == 4

    llama._sampler.stop_ids = frozenset()
    nearly_full, full = tuple([7] * 253), tuple([7] * 256)
    ended = sample(llama, [SampleRequest("a", nearly_full, 1), SampleRequest("b", full, 1)], max_new_tokens=9)
    assert [(g.stop_reason, len(g.token_ids)) for g in ended] == [("context", 3), ("context", 0)]


def test_long_prompts_are_read_in_pieces(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(2)
    requests = [SampleRequest(str(i), random_ids(generator, 30, 60), seed=i, session=str(i)) for i in range(6)]
    whole = sample(engine, requests, max_new_tokens=2)
    engine.release([str(i) for i in range(6)])
    monkeypatch.setattr(sampler_module, "PREFILL_TOKENS", 100)
    monkeypatch.setattr(sampler_module, "MASK_ELEMENTS", 700)
    pieces = sample(engine, requests, max_new_tokens=2)
    for a, b in zip(whole, pieces, strict=True):
        assert a.token_ids == b.token_ids
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4)


def test_greedy_is_the_mode(llama: LocalEngine) -> None:
    prompt = tuple(range(5, 15))
    generation = sample(llama, [SampleRequest("x", prompt, 1)], max_new_tokens=1, temperature=0)[0]
    with torch.no_grad():
        logits = llama._sampler.decoder.model(input_ids=torch.tensor([prompt])).logits[0, -1]
    assert generation.token_ids[0] == int(logits.argmax())
    assert generation.logprobs[0] == pytest.approx(float(torch.log_softmax(logits, -1).max()), abs=1e-5)
    assert generation.temperature == 0


def test_bad_requests_are_named(llama: LocalEngine) -> None:
    with pytest.raises(ValueError, match="'x' has an empty prompt"):
        sample(llama, [SampleRequest("x", (), 1)])
    with pytest.raises(ValueError, match="outside 0…127"):
        sample(llama, [SampleRequest("x", (5, VOCAB_SIZE), 1)])
    with pytest.raises(ValueError, match="same session"):
        sample(llama, [SampleRequest("x", (5,), 1, "s"), SampleRequest("y", (5,), 1, "s")])
    with pytest.raises(ValueError, match="out of range"):
        sample(llama, [SampleRequest("x", (5,), 1)], top_p=0.0)
    assert sample(llama, []) == []


def test_broken_weights_are_reported_and_do_not_stay_in_the_cache(llama: LocalEngine) -> None:
    long, short = SampleRequest("x", tuple(range(5, 50)), 1, "s"), SampleRequest("y", (5, 6, 7), 2)

    def scenario() -> list[TokenIds]:
        """The short row sits behind a longer one: masked positions of its slot are part of the batch."""
        return [g.token_ids for requests in ([long], [long, short]) for g in sample(llama, requests, max_new_tokens=3)]

    good = scenario()
    llama.release(["s"])
    weight = llama._sampler.decoder.model.model.embed_tokens.weight
    saved = weight.detach().clone()
    weight.fill_(math.nan)
    with pytest.raises(InfrastructureError, match="not finite"):
        sample(llama, [SampleRequest(str(i), long.prompt_ids, i) for i in range(2)], max_new_tokens=3)
    weight.copy_(saved)
    assert scenario() == good
