"""Runs are found again by what they were, resumed, and a failure does not stop the others. `crl train` itself is not started here."""

import sys
from pathlib import Path

import pytest

from complementary_rl.config import Config
from complementary_rl.config_file import config_hash, dump_config
from studies import runs
from studies.declaration import load
from studies.runs import Cache, Cell, cells, run_all


def _cell(root: Path, variant: str, seed: int = 1) -> Cell:
    return Cell(variant, seed, Config(), root / variant)


def test_cells_come_seed_by_seed_and_differ_where_their_configurations_do(tmp_path: Path) -> None:
    study = load("quickstart-few")
    todo = cells(study, ["baseline", "complementary"], [3, 4], tmp_path)
    assert [(c.variant, c.seed) for c in todo] == [("baseline", 3), ("complementary", 3), ("baseline", 4), ("complementary", 4)]
    assert len({cell.directory for cell in todo}) == 4
    assert cells(study, ["baseline"], [3], tmp_path, steps=7)[0].config.run.steps == 7


def test_a_run_made_before_a_setting_existed_still_counts(tmp_path: Path) -> None:
    config = Config()
    older = dump_config(config).replace("vote_weight = 0.0\n", "")
    assert "vote_weight" not in older
    (tmp_path / "of-then").mkdir()
    (tmp_path / "of-then" / "config.toml").write_text(older)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.toml").write_text("[nothing]\nof = 1\n")
    cache = Cache(tmp_path)
    assert cache.directory(config) == tmp_path / "of-then"
    other = config.model_copy(update={"run": config.run.model_copy(update={"seed": 5})})
    assert cache.directory(other) == tmp_path / config_hash(other)


def test_a_failure_is_told_with_its_cause_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started = []

    def command(cell: Cell) -> list[str]:
        started.append(cell.variant)
        if cell.variant == "bad":
            return [sys.executable, "-c", "print('the disk is full'); raise SystemExit(3)"]
        directory = cell.directory.as_posix()
        return [sys.executable, "-c", f"import pathlib as p; d = p.Path({directory!r}); d.mkdir(); (d / 'summary.json').touch()"]

    monkeypatch.setattr(runs, "_command", command)
    done = _cell(tmp_path, "done")
    done.directory.mkdir()
    (done.directory / "summary.json").touch()
    said: list[str] = []
    failures = run_all([done, _cell(tmp_path, "bad"), _cell(tmp_path, "good"), _cell(tmp_path, "good", 2)], 1, said.append)
    assert started == ["bad", "good"], "what is finished is not run again, and an equal run is made once"
    assert [failure.cell.variant for failure in failures] == ["bad"]
    assert "exit 3" in failures[0].cause
    assert "the disk is full" in failures[0].cause
    assert said[-1].startswith("2/2  good")


def test_a_run_that_was_begun_is_resumed(tmp_path: Path) -> None:
    cell = _cell(tmp_path, "a")
    assert "--resume" not in runs._command(cell)
    cell.directory.mkdir()
    (cell.directory / "run.json").touch()
    assert "--resume" in runs._command(cell)
