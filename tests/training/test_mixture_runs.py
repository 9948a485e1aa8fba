"""Runs on a mixture: shares, metrics by part, and a part that fails without taking the others with it."""

import asyncio
import json
from pathlib import Path

import pytest
from helpers.runs import mixture_config, newest_checkpoint, parity_config, records, timeless
from helpers.suites import task

from complementary_rl.config import EvalConfig
from complementary_rl.envs.protocol import Part
from complementary_rl.errors import InfrastructureError, UserError
from complementary_rl.report.html import render_report
from complementary_rl.report.summary import RunSummary, load_summary
from complementary_rl.rollout.plan import EpisodePlan
from complementary_rl.rollout.runner import Fault
from complementary_rl.training.evaluation import check_evaluation
from complementary_rl.training.fault_budget import FIRST_REST, FaultBudget
from complementary_rl.training.run import evaluate_run, train

EVALUATION = ("eval.episodes=12", "eval.shuffled_control=true")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "run"
    train(mixture_config(directory, "", *EVALUATION))
    return directory


def test_episodes_are_counted_by_part_and_add_up(run: Path) -> None:
    for record in records(run, "step"):
        parts = record["parts"]
        assert {name: sum(parts[name].get(c, {}).get("n", 0) for c in ("free", "guided")) for name in parts} == {
            "oddity": 4,
            "parity": 8,
        }
        for condition, whole in record["rollout"].items():
            own = [parts[name][condition] for name in parts if condition in parts[name]]
            assert sum(part["n"] for part in own) == whole["n"]
            assert sum(part["n"] * part["reward"] for part in own) / whole["n"] == pytest.approx(whole["reward"])


def test_evaluation_gives_every_part_as_much_and_shows_it_apart(run: Path) -> None:
    [record] = records(run, "eval")
    for arm in ("free", "guided", "shuffled"):
        own = [record["parts"][name][arm]["success"] for name in ("oddity", "parity")]
        assert [estimate["n"] for estimate in own] == [6, 6], "whatever the weights"
        assert sum(estimate["mean"] for estimate in own) / 2 == pytest.approx(record[arm]["success"]["mean"])
    parts = load_summary(run).methods["complementary"].parts
    assert {name: (part.episodes, part.faults) for name, part in parts.items()} == {"oddity": (12, 0), "parity": (24, 0)}
    assert parts["oddity"].arms["free"].success.mean == record["parts"]["oddity"]["free"]["success"]["mean"]
    assert "oddity, guided" in str(load_summary(run))


def test_the_control_shows_the_experience_of_another_task_of_the_same_part(run: Path) -> None:
    config = mixture_config(run, "", *EVALUATION)
    result = asyncio.run(evaluate_run(config, config.eval))
    assert {t.task.env for t in result.parts["oddity"]["free"]} == {"oddity"}
    played = [t.task.env for t in result.episodes["shuffled"]]
    assert played == ["oddity", "parity"] * 6


def test_the_report_shows_curves_and_results_by_task(run: Path) -> None:
    page = render_report(run)
    assert page.count("<h3>oddity</h3>") == page.count("<h3>parity</h3>") == 1
    assert "<h3>By task</h3>" in page
    assert page.count('<h4 class="text">') == 2


def test_runs_of_one_suite_look_as_before(tmp_path: Path) -> None:
    train(parity_config(tmp_path / "run", "run.steps=1"))
    assert not any("parts" in record for record in records(tmp_path / "run"))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["methods"]["complementary"]["parts"] == {}
    page = render_report(tmp_path / "run")
    assert "by task" not in page.lower()


def test_summaries_written_before_there_were_parts_are_read(run: Path) -> None:
    data = json.loads((run / "summary.json").read_text())
    del data["methods"]["complementary"]["parts"]
    assert RunSummary.model_validate(data).methods["complementary"].parts == {}


def test_evaluations_that_leave_a_part_out_are_refused_before_training() -> None:
    full, empty, single = Part("a", [task(0), task(1)]), Part("b", []), Part("c", [task(2)])
    with pytest.raises(UserError, match=r"part 'b' has no heldout tasks; .*name the tasks of the other parts in eval\.tasks"):
        check_evaluation([full, empty], EvalConfig())
    check_evaluation([full, empty], EvalConfig(tasks=("count/0",)))
    with pytest.raises(UserError, match="at least two tasks of part 'c'"):
        check_evaluation([full, single], EvalConfig(shuffled_control=True))
    with pytest.raises(UserError, match=r"eval\.episodes is 2; each of the 3 parts"):
        check_evaluation([full, single, Part("d", [task(3)])], EvalConfig(episodes=2))


# --- a part that fails --------------------------------------------------------------------------------------------------------------


def test_a_part_that_fails_sits_out_and_the_others_take_its_groups(tmp_path: Path) -> None:
    options = ("env.fault_budget=5", "run.steps=4", "eval.tasks=['parity/0', 'parity/1']")
    train(mixture_config(tmp_path / "run", "fault = 'raised'", *options))
    steps = records(tmp_path / "run", "step")
    assert [record["parts"]["oddity"]["faults"] for record in steps] == [4, 8, 8, 8]
    assert [sum(c["n"] for c in record["rollout"].values()) for record in steps] == [8, 8, 12, 12]
    [message] = [record["message"] for record in records(tmp_path / "run", "event") if "sits out" in record["message"]]
    assert message.startswith(
        "part 'oddity': 8 episodes were lost to environment faults, more than env.fault_budget = 5; the last: "
    )
    assert f"sits out until step {2 + FIRST_REST} and the others take its groups" in message
    parts = load_summary(tmp_path / "run").methods["complementary"].parts
    assert (parts["oddity"].faults, parts["oddity"].episodes, parts["oddity"].arms) == (8, 0, {})


def test_who_sits_out_is_known_after_a_resume(tmp_path: Path) -> None:
    options = ("env.fault_budget=5", "eval.tasks=['parity/0', 'parity/1']", "run.steps=4")

    def stop(record: dict[str, object]) -> None:
        if record["kind"] == "step" and record["step"] == 2:
            raise KeyboardInterrupt

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    train(mixture_config(whole, "fault = 'raised'", *options))
    with pytest.raises(KeyboardInterrupt):
        train(mixture_config(broken, "fault = 'raised'", *options), on_record=stop)
    assert newest_checkpoint(broken).name == "step_2"
    train(mixture_config(broken, "fault = 'raised'", *options), resume=True)
    assert timeless(broken) == timeless(whole)


def lost(count: int) -> list[Fault]:
    return [Fault(EpisodePlan(f"e{i}", task(0), 0, 0, i, 0, 0), "hung", "no answer within 30 s") for i in range(count)]


def test_a_part_comes_back_and_sits_out_twice_as_long_the_next_time() -> None:
    budget = FaultBudget(["a", "b"], limit=3)
    assert budget.count("a", lost(3), 0) is None
    assert budget.count("a", [], 1) is None
    assert "sits out until step 11" in str(budget.count("a", lost(1), 2))
    assert [budget.plays("a", step) for step in (2, 3, 10, 11)] == [False, False, False, True]
    assert budget.plays("b", 3)
    assert budget.count("a", lost(3), 11) is None, "its count begins anew"
    again = FaultBudget(["a", "b"], limit=3)
    again.load_state_dict(json.loads(json.dumps(budget.state_dict())))
    assert f"sits out until step {12 + 1 + 2 * FIRST_REST} " in str(again.count("a", lost(1), 12))
    assert again.faults("a") == 8


def test_a_run_stops_when_no_part_plays_on() -> None:
    budget = FaultBudget(["a", "b"], limit=3)
    assert budget.count("a", lost(4), 0)
    with pytest.raises(InfrastructureError, match=r"^part 'b': 4 episodes were lost .* the last: hung: no answer.*crl envs check"):
        budget.count("b", lost(4), 4)
    with pytest.raises(InfrastructureError, match=r"^4 episodes were lost"):
        FaultBudget(["alone"], limit=3).count("alone", lost(4), 0)
