"""Lives of entries, from banks whose history is known."""

import sqlite3
from pathlib import Path

import pytest

from studies.bank_science import duplicate_share, half_life, read_bank, usefulness_by_age


def test_a_bank_is_read_with_ages_growth_and_operations(tmp_path: Path) -> None:
    path = tmp_path / "bank.sqlite"
    with sqlite3.connect(path) as database:
        database.executescript(
            """CREATE TABLE entries (id INTEGER, created_step INTEGER, retired_step INTEGER);
            CREATE TABLE outcomes (step INTEGER, entry_id INTEGER, success INTEGER);
            CREATE TABLE operations (kind TEXT);
            INSERT INTO entries VALUES (1, 0, 4), (2, 0, NULL), (3, 4, NULL);
            INSERT INTO outcomes VALUES (1, 1, 1), (9, 2, 0), (9, 2, NULL);
            INSERT INTO operations VALUES ('add'), ('add'), ('add'), ('vote');"""
        )
    database.close()
    life = read_bank(path, last_step=10)
    assert sorted(life.lives) == [(4, True), (6, False), (10, False)]
    assert life.shown == ((1, True), (9, False))
    assert life.growth == ((0, 2), (4, 2))
    assert duplicate_share(life.operations) == 0.25
    assert duplicate_share({}) is None
    with pytest.raises(sqlite3.OperationalError):
        read_bank(tmp_path / "none.sqlite", 1)


def test_half_life_takes_entries_that_still_live_into_account() -> None:
    assert half_life([(1, True), (2, True), (3, True), (4, True)]) == 2.0
    assert half_life([(1, True), (9, False), (9, False)]) is None
    assert half_life([(1, False), (1, False), (5, True), (9, False)]) == 5.0


def test_usefulness_is_told_by_age() -> None:
    shown = [(0, True), (4, False), (5, True), (99, True)]
    assert usefulness_by_age(shown, [5, 10, 20]) == [0.5, 1.0, None]
