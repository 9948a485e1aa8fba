"""Every `run.method`, a few steps each: what it trains, what it shows, what it writes."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from helpers.runs import bank_tables, newest_checkpoint, parity_config, records, timeless, tiny_config

from complementary_rl.config_file import load_config
from complementary_rl.errors import ConfigError
from complementary_rl.training.methods import guided_members
from complementary_rl.training.run import train

KEPT = ("checkpoint.keep=10", "retrieval.min_similarity=0.5")


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four steps of the whole method in NetHack's rooms."""
    directory = tmp_path_factory.mktemp("runs") / "full"
    train(tiny_config(directory, "run.steps=4", "eval.interval=2", "eval.shuffled_control=true", *KEPT))
    return directory


def weights(directory: Path, step: int, model: str) -> bytes:
    return (directory / "checkpoints" / f"step_{step}" / model / "weights.safetensors").read_bytes()


def changed(directory: Path, model: str, steps: int = 3) -> bool:
    return weights(directory, 1, model) != weights(directory, steps, model)


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for part in value.values() for number in numbers(part)]
    return [float(value)] if isinstance(value, int | float) else []


def conditions(directory: Path) -> list[set[str]]:
    return [set(record["rollout"]) for record in records(directory, "step")]


def test_a_run_writes_what_it_promises(full: Path) -> None:
    names = {path.name for path in full.iterdir()}
    assert {"config.toml", "run.json", "metrics.jsonl", "summary.json", "bank.sqlite", "checkpoints", "episodes"} <= names
    assert {path.name for path in (full / "episodes").iterdir()} == {
        *(f"step_{step}.jsonl" for step in range(4)),
        "eval_2.jsonl",
        "eval_4.jsonl",
    }
    first = json.loads((full / "episodes" / "step_0.jsonl").read_text().splitlines()[0])
    assert first["turns"][0]["observation"].startswith("at ")
    assert len(first["turns"]) == first["n_actions"]


def test_metrics_are_finite_and_count_every_episode(full: Path) -> None:
    steps = records(full, "step")
    assert [record["step"] for record in steps] == [0, 1, 2, 3]
    assert [record["episodes"] for record in steps] == [8, 16, 24, 32]
    assert all(math.isfinite(number) for record in records(full) for number in numbers(record))
    assert [record["step"] for record in records(full, "eval")] == [2, 4]


def test_the_summary_reports_the_arms_apart(full: Path) -> None:
    summary = json.loads((full / "summary.json").read_text())
    method = summary["methods"]["complementary"]
    assert method["episodes"] == 32
    text = json.dumps(method)
    for arm in ("guided", "free", "shuffled"):
        assert arm in text
    assert method["wall_seconds"] > 0


def test_the_whole_method_trains_both_models_and_fills_the_bank(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(parity_config(run, "run.steps=4", "extractor.batch_size=2", *KEPT))
    assert changed(run, "actor", 4)
    assert records(run, "extractor"), "the extractor is never updated"
    assert changed(run, "extractor", 4)
    tables = bank_tables(run / "bank.sqlite")
    assert tables["entries"] and tables["retrievals"] and tables["outcomes"] and tables["credits"] and tables["trainings"]


def test_warm_up_retrieves_nothing_and_shows_nothing(tmp_path: Path) -> None:
    train(parity_config(tmp_path / "run", "run.warmup_steps=2", "run.steps=3", *KEPT))
    assert conditions(tmp_path / "run")[:2] == [{"free"}, {"free"}]
    assert min(row[1] for row in bank_tables(tmp_path / "run" / "bank.sqlite")["retrievals"]) == 2
    assert conditions(tmp_path / "run")[2] == {"free", "guided"}


def test_half_of_a_group_is_guided(full: Path) -> None:
    shares = [{name: part["n"] for name, part in record["rollout"].items()} for record in records(full, "step")]
    assert shares[0] == {"free": 8}
    # A room the bank knows nothing of is played free, and is labelled so.
    assert all(share["free"] >= 4 and sum(share.values()) == 8 for share in shares)
    assert any(share.get("guided", 0) >= 2 for share in shares)


def test_baseline_has_neither_bank_nor_extractor(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(parity_config(run, "run.method=baseline", *KEPT))
    assert not (run / "bank.sqlite").exists()
    assert not (newest_checkpoint(run) / "extractor").exists()
    assert conditions(run) == [{"free"}] * 3
    assert changed(run, "actor")
    assert set(records(run, "eval")[0]) & {"free", "guided"} == {"free"}


def test_static_online_fills_the_bank_and_leaves_the_extractor(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(parity_config(run, "run.method=static_online", *KEPT))
    assert not changed(run, "extractor")
    assert changed(run, "actor")
    assert bank_tables(run / "bank.sqlite")["entries"]
    assert records(run, "extractor") == []


def test_exp_only_leaves_the_actor(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(parity_config(run, "run.method=exp_only", "run.steps=4", "extractor.batch_size=2", *KEPT))
    assert not changed(run, "actor", 4)
    assert changed(run, "extractor", 4)


def test_all_guided_has_no_free_half(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(parity_config(run, "run.method=all_guided", "credit.rule=outcome", "run.steps=4", *KEPT))
    assert conditions(run)[0] == {"free"}
    assert {"guided"} in conditions(run)[1:]
    assert changed(run, "actor", 4)


def test_pooled_differs_from_condition_wise_in_the_update_only(tmp_path: Path) -> None:
    options = ("run.steps=4", "run.warmup_steps=1", "self_distillation.enabled=false", *KEPT)
    train(parity_config(tmp_path / "split", *options))
    train(parity_config(tmp_path / "pooled", "run.method=pooled", *options))
    played = [[record["rollout"] for record in records(tmp_path / name, "step")] for name in ("split", "pooled")]
    assert played[0][:2] == played[1][:2]
    assert "guided" in played[0][1]
    assert weights(tmp_path / "split", 1, "actor") == weights(tmp_path / "pooled", 1, "actor")
    assert weights(tmp_path / "split", 4, "actor") != weights(tmp_path / "pooled", 4, "actor")


def test_offline_plays_with_the_given_bank_and_writes_nothing_into_it(full: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    given = bank_tables(full / "bank.sqlite")["entries"]
    config = tiny_config(run, "run.method=offline", "run.warmup_steps=0", f"bank.source={full / 'bank.sqlite'}", *KEPT)
    train(config)
    tables = bank_tables(run / "bank.sqlite")
    assert {row[1] for row in tables["entries"]} <= {row[1] for row in given}
    assert tables["generations"] == []
    assert "guided" in conditions(run)[0]
    assert changed(run, "actor")
    assert not (newest_checkpoint(run) / "extractor").exists()


def test_offline_can_still_be_asked(full: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ("run.method=offline", "tool.enabled=true", "run.warmup_steps=0", f"bank.source={full / 'bank.sqlite'}")
    train(tiny_config(run, *options, *KEPT))
    assert not changed(run, "extractor")


def test_self_distillation_adds_its_term_where_it_is_due(tmp_path: Path) -> None:
    options = ("run.steps=4", "run.method=baseline", "self_distillation.source=own", "run.seed=1")
    train(parity_config(tmp_path / "with", "self_distillation.enabled=true", "self_distillation.interval=2", *options, *KEPT))
    train(parity_config(tmp_path / "late", "self_distillation.enabled=true", "self_distillation.warmup_steps=3", *options, *KEPT))
    train(parity_config(tmp_path / "without", "self_distillation.enabled=false", *options, *KEPT))
    names = ("with", "late", "without")
    terms = [["imitation/loss" in record["actor"] for record in records(tmp_path / name, "step")] for name in names]
    assert terms == [[False, True, False, True], [False, False, False, True], [False] * 4]
    assert weights(tmp_path / "with", 1, "actor") == weights(tmp_path / "without", 1, "actor")
    assert weights(tmp_path / "with", 2, "actor") != weights(tmp_path / "without", 2, "actor")


def test_the_guided_share_is_kept_or_moves_on_a_straight_line() -> None:
    def members(*overrides: str) -> list[int]:
        config = load_config(None, ["run.steps=5", *overrides])
        return [guided_members(config, step) for step in range(5)]

    assert members() == [4] * 5
    assert members("env.guided_share=0.25") == [2] * 5
    assert members("env.guided_share=0.75", "env.guided_share_end=0.25") == [6, 5, 4, 3, 2]
    assert members("env.guided_share_end=0") == [4, 3, 2, 2, 0], "none is alone in its half"
    assert members("run.method=all_guided", "env.guided_share=0.25") == [8] * 5
    assert members("run.method=baseline") == [0] * 5
    for share in ("0.1", "0.9"):
        with pytest.raises(ConfigError, match=r"env\.guided_share"):
            members(f"env.guided_share={share}")
    with pytest.raises(ConfigError, match="must be below 1"):
        members("env.guided_share_end=1", "credit.rule=relative")


def test_a_share_of_each_group_is_guided(tmp_path: Path) -> None:
    options = ("env.group_size=8", "env.guided_share=0.75", "run.steps=3")
    train(parity_config(tmp_path / "run", *options, *KEPT))
    played = [record["rollout"] for record in records(tmp_path / "run", "step")]
    counts = {(rollout["guided"]["n"] / rollout["free"]["n"]) for rollout in played if "guided" in rollout}
    assert max(counts) == 3.0


def test_the_ratio_leaves_one_on_the_second_minibatch(tmp_path: Path) -> None:
    def ratios(minibatches: int) -> list[float]:
        run = tmp_path / f"run{minibatches}"
        options = ("run.method=baseline", "self_distillation.enabled=false", f"actor.updates_per_batch={minibatches}")
        train(parity_config(run, "run.steps=3", *options))
        return [record["actor"]["grpo/ratio"] for record in records(run, "step") if "grpo/ratio" in record["actor"]]

    alone = ratios(1)
    assert alone
    assert alone == pytest.approx([1.0] * len(alone), abs=1e-4)
    assert max(abs(ratio - 1.0) for ratio in ratios(2)) > 1e-3


def test_the_tool_is_only_offered_with_experience(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(parity_config(run, "tool.enabled=true", "run.steps=2", *KEPT))
    assert conditions(run)[1] == {"free", "guided"}


def test_the_gate_is_asked_and_the_run_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ("gate.enabled=true", "gate.warmup_steps=0", "gate.max_new_tokens=4", "run.steps=3")
    train(parity_config(run, *options, *KEPT))
    assert records(run, "step")[2]["time"]["rollout_gate"] > 0
    assert all(sum(part["n"] for part in record["rollout"].values()) == 8 for record in records(run, "step"))


def test_async_runs_and_drains(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(parity_config(run, "run.schedule=async", "run.steps=4", "distill.per_group=2", *KEPT))
    assert len(records(run, "step")) == 4
    state = json.loads((newest_checkpoint(run) / "state.json").read_text())
    assert state["progress"]["step"] == 4
    assert state["manager"]["distiller"]["queue"] == []
    read = [row[0] for row in bank_tables(run / "bank.sqlite")["generations"] if row[0].startswith("d/")]
    assert len(read) == 2 * 2 * 4, "two episodes of each of two groups in each of four steps are read, the last ones too"
    assert (run / "summary.json").exists()


def test_the_same_seed_gives_the_same_run(full: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    train(tiny_config(again, "run.steps=4", "eval.interval=2", "eval.shuffled_control=true", *KEPT))
    assert timeless(again) == timeless(full)
    assert bank_tables(again / "bank.sqlite") == bank_tables(full / "bank.sqlite")
    for model in ("actor", "extractor"):
        assert weights(again, 4, model) == weights(full, 4, model)
