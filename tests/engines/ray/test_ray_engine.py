"""The engine on Ray beside a local twin that makes the same steps: two ranks, two samplers, a tiny model."""

import asyncio
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.models import save_tiny_model
from transformers import AutoModelForCausalLM

from complementary_rl.config import ClusterConfig, ModelConfig, WorkersConfig
from complementary_rl.engines import make_engine
from complementary_rl.engines.local.checkpoint import read_tensors
from complementary_rl.engines.protocol import (
    Engine,
    LossInputs,
    LossOutput,
    LossTerm,
    OptimParams,
    SampleRequest,
    SamplingParams,
    TrainingSample,
)
from complementary_rl.errors import InfrastructureError, UserError
from complementary_rl.objectives.distillation import NextTokenLoss

ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.timeout(900)]

OPTIM = OptimParams(lr=1e-3, max_tokens_per_microbatch=40)
CLUSTER = ClusterConfig(
    actor=WorkersConfig(train=2, sample=2),
    extractor=WorkersConfig(train=1, sample=1),
    snapshot_interval=2,
    timeout=600,
    heartbeat=60,
    fault_budget=4,
)


@dataclass(frozen=True)
class Deadly:
    """The loss of an imitation, in which the first process to create `marker` dies."""

    marker: Path
    needs_reference: bool = False
    needs_entropy: bool = False
    inner: NextTokenLoss = field(default_factory=NextTokenLoss)

    def __call__(self, inputs: LossInputs) -> LossOutput:
        try:
            self.marker.touch(exist_ok=False)
        except FileExistsError:
            return self.inner(inputs)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


@dataclass
class Pair:
    """A Ray engine and its local twin, which are told the same."""

    ray: Engine
    local: Engine
    folder: Path

    def update(self, shift: int, marker: Path | None = None) -> list[dict[str, float]]:
        samples = self.samples(shift)
        ours = LossTerm("imitate", samples, NextTokenLoss() if marker is None else Deadly(marker))
        terms = {"ray": ours, "local": LossTerm("imitate", samples, NextTokenLoss())}
        return [asyncio.run(getattr(self, side).update([term], OPTIM)) for side, term in terms.items()]

    def publish(self) -> list[int]:
        return [asyncio.run(engine.publish()) for engine in (self.ray, self.local)]

    def samples(self, shift: int) -> list[TrainingSample]:
        """Five of unequal length: ranks get different numbers of them."""
        ids = [tuple(5 + (i * 7 + shift + j) % 100 for j in range(6 + 3 * i)) for i in range(5)]
        return [TrainingSample(x, (False, *[True] * (len(x) - 1)), (0.0,) * len(x), 1.0, 1 / 55) for x in ids]

    def sampled(self, prompt: int = 4, sessions: bool = True) -> list[list[Any]]:
        asked = [SampleRequest(str(i), (*range(5, 5 + prompt), 60 + i), i, f"s{i}" if sessions else None) for i in range(5)]
        runs = [asyncio.run(engine.sample(asked, SamplingParams(max_new_tokens=6))) for engine in (self.ray, self.local)]
        return [[(g.id, g.token_ids, g.version) for g in generations] for generations in runs]

    def saved(self, group: str) -> list[dict[str, torch.Tensor]]:
        """What both save of a group of tensors."""
        for side in ("ray", "local"):
            getattr(self, side).save(self.folder / side)
        return [read_tensors(self.folder / side, group) for side in ("ray", "local")]

    def apart(self, group: str = "weights") -> float:
        ours, theirs = self.saved(group)
        assert ours.keys() == theirs.keys()
        return max(float((ours[name] - theirs[name]).abs().max()) for name in theirs)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    return ModelConfig(path=str(save_tiny_model(tmp_path_factory.mktemp("models") / "qwen3", "qwen3")))  # a tied head


@pytest.fixture(scope="module")
def pair(model: ModelConfig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    # The workers cannot import this file.
    ray.cloudpickle.register_pickle_by_value(__import__("sys").modules[__name__])
    made = Pair(make_engine("actor", model, cluster=CLUSTER), make_engine("actor", model), tmp_path_factory.mktemp("pair"))
    yield made
    made.ray.close()
    made.local.close()
    assert not ray.is_initialized()


def test_ranks_compute_what_one_process_does(pair: Pair) -> None:
    for step in range(3):
        ours, theirs = pair.update(step)
        assert ours == pytest.approx(theirs, rel=1e-4)
    assert pair.apart("optimizer") < 1e-6  # the moments: averages of gradients and of their squares
    assert pair.apart() < 1e-6
    rows = [asyncio.run(engine.logprobs(pair.samples(9))) for engine in (pair.ray, pair.local)]
    for ours_T, theirs_T in zip(*rows, strict=True):
        torch.testing.assert_close(ours_T, theirs_T, rtol=0, atol=1e-5)


def test_samplers_serve_what_was_published_last(pair: Pair) -> None:
    pair.update(3)
    before, twin = pair.sampled()
    assert before == twin
    assert len(set(pair.publish())) == 1
    ours, theirs = pair.sampled(prompt=6)
    assert ours == theirs
    assert ours[0][2] == before[0][2] + 1
    pool: Any = pair.ray._pool  # type: ignore[attr-defined]
    homes = dict(pool._homes)
    assert set(homes.values()) == {0, 1}
    pair.sampled(prompt=9)
    assert pool._homes == homes, "episodes stay where their cache is"
    for engine in (pair.ray, pair.local):
        engine.release([f"s{i}" for i in range(5)])
    assert pair.sampled()[0] == pair.sampled()[1]


def test_a_failed_publish_leaves_the_old_version_serving(pair: Pair) -> None:
    before = pair.sampled(sessions=False)[0]
    engine: Any = pair.ray
    strange = ray.put({"lm_head.weight": ("float32", torch.zeros(2, 2).numpy())})
    with pytest.raises(ValueError, match="other names or shapes"):
        engine._pool.publish(engine.version + 1, strange)
    assert pair.sampled(sessions=False)[0] == before


def test_a_rank_that_dies_in_a_step_is_replaced_and_the_step_repeated(pair: Pair, tmp_path: Path) -> None:
    pair.update(4)  # not in the last copy: it has to be repeated
    ours, theirs = pair.update(5, tmp_path / "struck")
    assert (tmp_path / "struck").exists()
    assert ours == pytest.approx(theirs, rel=1e-4)
    assert pair.apart() < 1e-6
    (event,) = pair.ray.take_events()
    assert "actor trainer rank" in event
    assert "2 trainer ranks restarted" in event


def test_a_sampler_that_dies_is_replaced_and_asked_again(pair: Pair) -> None:
    pair.update(6)
    pair.publish()
    assert pair.sampled()[0] == pair.sampled()[1]
    pool: Any = pair.ray._pool  # type: ignore[attr-defined]
    os.kill(pool._samplers[1].home[1], signal.SIGKILL)
    ours, theirs = pair.sampled(prompt=8)
    assert ours == theirs
    (event,) = pair.ray.take_events()
    assert event.startswith("actor sampler 1")


def test_faults_of_data_are_raised_and_not_repeated(pair: Pair) -> None:
    sample = TrainingSample((5, 6), (True, True), (0.0, 0.0), 1.0, 1.0)
    with pytest.raises(ValueError, match="first token is marked as trained"):
        asyncio.run(pair.ray.update([LossTerm("wrong", [sample], NextTokenLoss())], OPTIM))
    with pytest.raises(ValueError, match="empty prompt"):
        asyncio.run(pair.ray.sample([SampleRequest("x", (), 0)], SamplingParams()))
    assert pair.apart() < 1e-6
    assert pair.ray.take_events() == []


def test_any_number_of_ranks_goes_on_from_a_checkpoint(pair: Pair, model: ModelConfig, tmp_path: Path) -> None:
    pair.update(7)
    assert pair.apart() < 1e-6  # both are saved now, with an update that was not published
    single = make_engine("extractor", model, cluster=CLUSTER)
    try:
        for directory in (pair.folder / "ray", pair.folder / "local"):
            state = directory / "engine.json"
            state.write_text(state.read_text().replace('"actor:', '"extractor:'))
            single.load(directory)
            assert single.version == pair.ray.version
            one = Pair(single, make_engine("extractor", model), tmp_path)
            one.local.load(directory)
            ours, theirs = one.sampled()
            assert ours == theirs, "what was served is served again"
            ours, theirs = one.update(8)
            assert ours == pytest.approx(theirs, rel=1e-4)
            one.publish()
            assert one.apart() < 1e-6
            one.local.close()
        single.export(tmp_path / "export")
    finally:
        single.close()
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "export").state_dict()
    weights = read_tensors(tmp_path / "ray", "weights")
    assert all(torch.equal(exported[name], tensor) for name, tensor in weights.items())


def test_the_budget_of_faults_ends(pair: Pair) -> None:
    from complementary_rl.engines.ray.calls import Worker, WorkerFault
    from complementary_rl.engines.ray.recovery import Recoveries

    recoveries = Recoveries("actor", 1)
    fault = WorkerFault(Worker("actor sampler 0", None), "is gone")
    recoveries.spend(fault)
    with pytest.raises(InfrastructureError, match=r"cluster\.fault_budget = 1.*actor sampler 0 is gone"):
        recoveries.spend(fault)
    with pytest.raises(UserError, match=r"asks for 9 CPUs"):
        from complementary_rl.engines.ray.connection import check_room

        check_room("actor", WorkersConfig(train=5, sample=4))
