"""What is taken from finished runs, how it is kept, and the estimates over seeds."""

from pathlib import Path

import numpy as np
import pytest
from helpers.run_dirs import make_run

from complementary_rl.config import Config
from complementary_rl.errors import UserError
from studies.declaration import Study
from studies.intervals import interquartile_interval, interquartile_mean, paired, seed_interval
from studies.measures import FinishedRun, curve, measure, useful_shares
from studies.results import collect, read
from studies.runs import Cell
from studies.tables import difference_table, interquartile_table, main_table, plain

STUDY = Study.model_validate(
    {
        "name": "s",
        "title": "t",
        "question": "q",
        "config": "quickstart",
        "measures": ["guided", "free", "entries", "wall minutes"],
        "curves": ["guided", "free"],
        "variants": {"complementary": {}, "baseline": {"run.method": "baseline"}},
        "comparisons": [{"of": ("complementary", "guided"), "against": ("baseline", "free")}],
    }
)


def _cells(root: Path, seeds: list[int]) -> list[Cell]:
    return [
        Cell(method, seed, Config(), make_run(root / f"{method}-{seed}", method, steps=8, seed=seed))
        for method in ("complementary", "baseline")
        for seed in seeds
    ]


def test_runs_are_collected_merged_and_told(tmp_path: Path) -> None:
    into = tmp_path / "results" / "s.json"
    done = _cells(tmp_path, [1, 2])
    collect(STUDY, done[:2], into)
    results = collect(STUDY, done[2:], into)
    assert read(STUDY, into) == results
    assert [(run.variant, run.seed) for run in results.runs] == [(cell.variant, cell.seed) for cell in done]
    assert results.values("baseline", "guided", [1, 2]) == [None, None]
    assert None not in results.values("complementary", "guided", [1, 2])
    assert len(into.read_text().splitlines()) == len(done) + 2, "a line per run"
    rows = main_table(STUDY, results, [1, 2])
    assert [row[:2] for row in rows[1:]] == [["complementary", "2"], ["baseline", "2"]]
    assert rows[2][2] == "–"
    difference = difference_table(STUDY, results, [1, 2])[1]
    values = paired(results.values("complementary", "guided", [1, 2]), results.values("baseline", "free", [1, 2]))
    assert difference[2] == ", ".join(f"{value:+.2f}" for value in values)
    assert "baseline" in plain(interquartile_table(STUDY, results, [1, 2]))
    assert main_table(STUDY, results, [7]) == [rows[0]], "seeds that were not run are not shown"


def test_a_damaged_file_of_results_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text("{")
    with pytest.raises(UserError, match="is damaged"):
        read(STUDY, tmp_path / "s.json")


def test_curves_are_thinned_means_over_episodes_and_minutes(tmp_path: Path) -> None:
    run = FinishedRun(make_run(tmp_path / "run", "baseline", steps=90))
    found = curve(run, "free")
    assert {len(values) for values in found.values()} == {40}
    assert found["episodes"] == sorted(found["episodes"])
    assert found["minutes"][-1] * 60 <= run.steps[-1]["wall"]
    raw = [record["rollout"]["free"]["success"] for record in run.steps]
    assert min(raw) <= min(found["values"]) <= max(found["values"]) <= max(raw)


def test_a_measure_of_a_part_the_run_does_not_have_is_none_and_nonsense_is_refused(tmp_path: Path) -> None:
    run = FinishedRun(make_run(tmp_path / "run", "baseline", steps=2))
    assert measure(run, "guided: alfworld") is None
    with pytest.raises(KeyError):
        measure(run, "luck")


def test_useful_shares_are_of_the_first_and_last_fifth_and_count_steps_without_a_useful_entry() -> None:
    experience = [{"judged_won_entries": 2.0}] * 2 + [{"judged_won_entries": 2.0, "useful_won_entries": 1.0}] * 8
    assert useful_shares([{"experience": e} for e in experience]) == (0.0, 0.5)
    assert useful_shares([{"experience": e} for e in experience[:9]]) == (None, None)


def test_the_interval_over_seeds_is_students() -> None:
    estimate = seed_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert estimate.mean == 3.0
    assert estimate.hi == pytest.approx(3.0 + 2.776 * (2.5 / 5) ** 0.5, abs=1e-3)
    assert seed_interval([2.0]).lo == 2.0
    assert seed_interval([]).n == 0


def test_the_interquartile_mean_leaves_a_quarter_out_at_either_end() -> None:
    assert interquartile_mean(np.array([100.0, 1.0, 2.0, 3.0, -50.0])) == 2.0
    estimate = interquartile_interval([100.0, 1.0, 2.0, 3.0, -50.0])
    assert estimate.mean == 2.0
    assert estimate.lo is not None and estimate.hi is not None
    assert -50 <= estimate.lo < 2 < estimate.hi <= 100
    assert interquartile_interval([]).n == 0


def test_differences_are_taken_where_both_seeds_are_there() -> None:
    assert paired([0.75, None, 0.5], [0.5, 0.1, None]) == [0.25]
