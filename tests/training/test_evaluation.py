"""Evaluation is paired, and only looks."""

import asyncio
from pathlib import Path

import pytest
from helpers.runs import bank_tables, parity_config, timeless, tiny_config
from helpers.suites import task

from complementary_rl.config_file import load_config
from complementary_rl.envs.protocol import Part
from complementary_rl.errors import CheckpointError, UserError
from complementary_rl.training.evaluation import FREE, GUIDED, SHUFFLED, Evaluation, select_tasks
from complementary_rl.training.run import evaluate_run, train
from complementary_rl.training.schedule import Schedule
from complementary_rl.training.session import open_session

ROOMS = ("run.steps=3", "eval.split=train", "eval.episodes=12", "eval.shuffled_control=true")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "run"
    train(tiny_config(directory, *ROOMS))
    return directory


@pytest.fixture(scope="module")
def evaluation(run: Path) -> Evaluation:
    config = tiny_config(run, *ROOMS)
    return asyncio.run(evaluate_run(config, config.eval))


def test_arms_are_paired_by_task_and_initial_state(evaluation: Evaluation) -> None:
    assert set(evaluation.episodes) == {FREE, GUIDED, SHUFFLED}
    starts = {arm: [(t.task.id, t.seed, t.turns[0].observation) for t in done] for arm, done in evaluation.episodes.items()}
    assert starts[FREE] == starts[GUIDED] == starts[SHUFFLED]
    assert len({observation for _, _, observation in starts[FREE]}) > 1


def test_the_free_arm_is_free_and_guided_shows_what_the_bank_has(evaluation: Evaluation) -> None:
    assert all(not t.entry_ids and not t.answer_ids for t in evaluation.episodes[FREE])
    assert 0 < evaluation.shown_share() <= 1
    for guided, shuffled in zip(evaluation.episodes[GUIDED], evaluation.episodes[SHUFFLED], strict=True):
        assert not guided.entry_ids or guided.entry_ids != shuffled.entry_ids


def test_an_evaluation_moves_nothing_in_the_bank(run: Path) -> None:
    before = bank_tables(run / "bank.sqlite")
    session = open_session(tiny_config(run, *ROOMS), run, resume=True)
    try:
        result = asyncio.run(Schedule(session, lambda record: None).evaluate())
        assert result.shown_share() > 0
        assert session.manager is not None
        assert session.manager.bank.entries()[0].stats.retrieved == before["entries"][0][9]
    finally:
        session.close()
    assert bank_tables(run / "bank.sqlite") == before


def test_evaluating_a_run_again_repeats_it_and_leaves_it_alone(run: Path, evaluation: Evaluation) -> None:
    before = (bank_tables(run / "bank.sqlite"), timeless(run), sorted(path.name for path in run.iterdir()))
    config = tiny_config(run, *ROOMS)
    again = asyncio.run(evaluate_run(config, config.eval))
    assert again == evaluation
    assert (bank_tables(run / "bank.sqlite"), timeless(run), sorted(path.name for path in run.iterdir())) == before


def test_evaluation_has_its_own_sampling_settings(run: Path) -> None:
    greedy = load_config(run / "config.toml", ["eval.temperature=0", "eval.episodes=4", f"run.dir={str(run)!r}"])
    done = asyncio.run(evaluate_run(tiny_config(run, *ROOMS), greedy.eval)).episodes
    assert all(turn.generation.temperature == 0 for t in done[FREE] for turn in t.turns)


def test_named_tasks_are_played_alone(run: Path) -> None:
    config = tiny_config(run, *ROOMS)
    wanted = str(bank_tables(run / "bank.sqlite")["entries"][0][5])
    settings = config.eval.model_copy(update={"tasks": (wanted,), "shuffled_control": False})
    done = asyncio.run(evaluate_run(config, settings)).episodes
    assert {t.task.id for t in done[FREE]} == {t.task.id for t in done[GUIDED]} == {wanted}
    with pytest.raises(UserError, match=r"eval\.tasks: unknown task 'nowhere'; the split has 2 tasks"):
        asyncio.run(evaluate_run(config, config.eval.model_copy(update={"tasks": ("nowhere",)})))


def test_without_a_checkpoint_there_is_nothing_to_evaluate(tmp_path: Path) -> None:
    config = tiny_config(tmp_path)
    with pytest.raises(CheckpointError, match="no checkpoint yet"):
        asyncio.run(evaluate_run(config, config.eval))


def test_select_tasks_keeps_the_order_asked_for() -> None:
    parts = [Part("a", [task(0), task(1), task(2)], 3.0), Part("b", [task(3)]), Part("c", [task(4)])]
    chosen = select_tasks(parts, ["count/4", "count/2", "count/0"])
    assert [(part.name, [t.id for t in part.tasks]) for part in chosen] == [("a", ["count/2", "count/0"]), ("c", ["count/4"])]
    assert select_tasks(parts, []) == parts


def test_an_evaluation_that_cannot_be_played_is_refused_before_training(tmp_path: Path) -> None:
    options = ("env.options={heldout = 0}", "eval.split=heldout")
    with pytest.raises(UserError, match=r"eval\.split: the suite has no heldout tasks"):
        train(parity_config(tmp_path / "run", *options))
    with pytest.raises(UserError, match="needs at least two tasks"):
        train(parity_config(tmp_path / "run", "env.options={heldout = 1}", "eval.split=heldout", "eval.shuffled_control=true"))
    with pytest.raises(UserError, match="unknown task 'parity/77'"):
        train(parity_config(tmp_path / "run", "eval.tasks=['parity/77']"))
    assert not (tmp_path / "run").exists()
