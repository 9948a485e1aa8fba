"""Plans by arithmetic: shapes are the published ones, every shipped config of the paper fits its GPUs, and refusals say what to change."""

import pytest

from complementary_rl.config import Config
from complementary_rl.config_file import load_config
from complementary_rl.configs import find_config, shipped
from complementary_rl.engines.local.loading import need_of
from complementary_rl.planning.plan import GIB, make_plan
from complementary_rl.planning.shapes import KNOWN, model_configuration

GPUS = {
    "paper/alfworld": 8,
    "paper/minihack": 8,
    "paper/mixture-3": 16,
    "paper/mixture-6": 16,
    "paper/one-gpu": 1,
    "paper/swe": 8,
    "paper/webshop": 8,
}


def config(*overrides: str, name: str = "paper/minihack") -> Config:
    return load_config(find_config(name), overrides)


def test_every_config_of_the_paper_has_its_gpus() -> None:
    assert set(GPUS) == {name for name in shipped() if name.startswith("paper/")}


@pytest.mark.parametrize(("name", "gpus"), GPUS.items())
def test_configs_of_the_paper_fit_their_gpus_and_say_that_they_were_not_run(name: str, gpus: int) -> None:
    plan = make_plan(load_config(find_config(name)), gpus=gpus)
    assert plan.problems == []
    assert len(plan.gpus) == gpus
    assert "not run" in find_config(name).read_text(encoding="utf-8").splitlines()[0]


@pytest.mark.parametrize(
    ("path", "billions"),
    [
        ("Qwen/Qwen2.5-3B-Instruct", 3.086),
        ("Qwen/Qwen2.5-7B-Instruct", 7.616),
        ("Qwen/Qwen3-0.6B", 0.596),
        ("Qwen/Qwen3-1.7B", 1.721),
        ("Qwen/Qwen3-4B-Thinking-2507", 4.022),
        ("Qwen/Qwen3-Embedding-0.6B", 0.596),
    ],
)
def test_known_shapes_have_the_published_number_of_parameters(path: str, billions: float) -> None:
    need = need_of(path, model_configuration(path), Config().actor.model)
    assert need.parameters / 1e9 == pytest.approx(billions, abs=1e-3)
    assert path in KNOWN


def test_a_paper_config_matches_the_papers_settings() -> None:
    made = config(name="paper/mixture-3")
    assert made.env.groups_per_step * made.env.group_size == 384
    assert (made.actor.optim.lr, made.actor.clip_epsilon, made.extractor.clip_low, made.extractor.batch_size) == (
        1e-6,
        0.2,
        0.1,
        64,
    )
    assert (made.bank.capacity, made.bank.eviction, made.merge.interval, made.merge.chunk) == (20_000, "fifo", 5, 5)


def test_too_few_gpus_are_refused_with_what_lacks() -> None:
    problem = " ".join(make_plan(config(), gpus=4).problems)
    assert "there are 4 GPUs, and the processes ask for 8" in problem
    assert "extractor trainer" in problem


@pytest.mark.parametrize(
    ("override", "remedies"),
    [
        (
            "cluster.actor.train=1",
            ["weights, gradients, optimiser", "Set cluster.actor.train = 4 (now 1)", "actor.model.lora.rank"],
        ),
        ("actor.model.gradient_checkpointing=false", ["activations of 32,768", "actor.model.gradient_checkpointing = true"]),
        ("extractor.model.max_context=131072", ["activations of 131,072", "extractor.model.max_context (now 131,072)"]),
    ],
)
def test_what_does_not_fit_is_named_with_the_setting_to_change(override: str, remedies: list[str]) -> None:
    problem = " ".join(make_plan(config(override)).problems)
    for remedy in remedies:
        assert remedy in problem


def test_an_engines_own_sampler_must_hold_all_its_sequences() -> None:
    overrides = ("actor.sampler=engine", "actor.vllm={}", "cluster.actor.sample=1", "cluster.actor.sample_gpus=1")
    problem = " ".join(make_plan(config(*overrides)).problems)
    assert "KV cache of 128 × 32,768 tokens: 224.0" in problem
    assert "Raise cluster.actor.sample (now 1)" in problem


def test_fractions_share_a_gpu_and_their_memory_adds_up() -> None:
    halves = ("cluster.actor.train_gpus=0.5", "cluster.extractor.train=4", "cluster.extractor.train_gpus=0.5")
    plan = make_plan(config(*halves), gpu_bytes=141 * GIB)
    assert plan.problems == []
    together = [gpu for gpu in plan.gpus if len({process.name for process in gpu.holds if process.kind == "trainer"}) == 1]
    assert sum(gpu.given for gpu in plan.gpus) == pytest.approx(6)
    assert all(gpu.bytes > 100 * GIB for gpu in together if gpu.given == 1 and gpu.holds[-1].kind == "trainer")


def test_a_config_of_this_package_is_planned_on_the_cpu_with_its_own_shapes() -> None:
    plan = make_plan(load_config(find_config("quickstart")), gpus=0)
    assert (plan.gpus, plan.problems) == ([], [])
    assert [process.kind for process in plan.processes] == ["engine", "engine"]
