"""The study's table reads finished runs; the runs themselves are not made here."""

import json
from pathlib import Path

import pytest

from studies import quickstart
from studies.intervals import seed_interval
from studies.matrix import Cell, cells


def test_cells_come_seed_by_seed_and_carry_their_overrides() -> None:
    todo = cells({"a": ("x=1",), "b": ()}, ("c=2",), [3, 4], Path("runs"))
    assert [(cell.variant, cell.seed) for cell in todo] == [("a", 3), ("b", 3), ("a", 4), ("b", 4)]
    assert todo[0] == Cell("a", ("c=2", "x=1"), 3, Path("runs/a/seed3"))


def test_useful_shares_are_of_the_first_and_last_fifth_and_count_steps_without_a_useful_entry(tmp_path: Path) -> None:
    experience = [{"judged_won_entries": 2.0}] * 2 + [{"judged_won_entries": 2.0, "useful_won_entries": 1.0}] * 8
    lines = [json.dumps({"kind": "step", "step": i, "experience": e}) for i, e in enumerate(experience)]
    (tmp_path / "metrics.jsonl").write_text("\n".join([*lines, ""]))
    assert quickstart._useful_shares(tmp_path) == (0.0, 0.5)


def test_the_interval_over_seeds_is_students() -> None:
    estimate = seed_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert estimate.mean == 3.0
    assert estimate.hi == pytest.approx(3.0 + 2.776 * (2.5 / 5) ** 0.5, abs=1e-3)
    assert seed_interval([2.0]).lo == 2.0
    assert seed_interval([]).n == 0


def test_differences_are_taken_seed_by_seed() -> None:
    table = {"complementary": {"guided": [0.8, 0.7, None]}, "baseline": {"free": [0.4, 0.1, 0.3]}}
    with_missing = {
        name: {**dict.fromkeys(["free", "actions per success"], [None] * 3), **values} for name, values in table.items()
    }
    with_missing["complementary"][quickstart.FIRST_FIFTH] = with_missing["complementary"][quickstart.LAST_FIFTH] = [None] * 3
    assert quickstart._differences(with_missing)[0].startswith("complementary, guided − baseline, free: +0.50")


@pytest.mark.parametrize("regime", list(quickstart.REGIMES))
def test_every_variant_is_a_valid_configuration(regime: str) -> None:
    from complementary_rl.config_file import load_config
    from complementary_rl.configs import find_config

    for overrides in quickstart.VARIANTS[regime].values():
        load_config(find_config(quickstart.CONFIG), [*quickstart.REGIMES[regime], *overrides])
