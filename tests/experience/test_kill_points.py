"""The short form of `python -m benchmarks.bank_durability`, and that its checks find what they look for."""

import sqlite3
from itertools import islice

import pytest

from benchmarks.bank_durability import check, report, run
from benchmarks.bank_load import busy_life, open_bank
from complementary_rl.seeds import rng


def test_a_process_killed_at_any_moment_loses_nothing_acknowledged(tmp_path, capsys):
    tallies = run(6, 0, tmp_path, modes=("operations", "checkpoint", "power loss", "operations", "import", "checkpoint"))
    assert report(tallies), capsys.readouterr().out
    assert sum(tally.points for tally in tallies.values()) == 6
    assert tallies["operations"].acknowledged > 20
    assert len(tallies["power loss"].power_losses) == 4


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("DELETE FROM operations WHERE id = (SELECT max(id) FROM operations)", "acknowledged and not there"),
        ("DELETE FROM credits WHERE id = 1", "generations without their credits"),
        ("DELETE FROM outcomes WHERE id = 1", "kept by half: outcomes"),
        ("DELETE FROM outcomes WHERE trajectory_id = (SELECT min(trajectory_id) FROM outcomes)", "acknowledged and not there"),
        ("UPDATE entries SET retired_step = 0 WHERE id = (SELECT max(id) FROM entries)", "the log does not rebuild"),
    ],
)
def test_the_check_finds(tmp_path, damage, message):
    path = tmp_path / "bank.sqlite"
    with open_bank(path) as bank:
        facts = [fact for new in islice(busy_life(bank, rng("check"), "life"), 30) for fact in new]
    assert check(path, facts) == (0, [])
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(damage)
    connection.close()
    assert any(message in problem for problem in check(path, facts)[1])


def test_the_check_tells_a_damaged_file(tmp_path):
    (tmp_path / "bank.sqlite").write_bytes(b"x" * 5000)
    lost, problems = check(tmp_path / "bank.sqlite", [["operation", 1, 0, "add", {}]])
    assert lost == 1
    assert "does not open" in problems[0]
