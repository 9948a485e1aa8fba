"""The table of suites: every kind of row, from the registry alone."""

import pytest

from benchmarks import envs
from complementary_rl.errors import UserError


def test_a_suite_with_an_expert() -> None:
    name, train, heldout, needs, reset_ms, steps, chance, expert, actions = envs.row("sokoban", 3, 2)
    assert (name, train, heldout, needs) == ("sokoban", "256", "64", "–")
    assert float(reset_ms) > 0
    assert float(steps.replace(",", "")) > 100
    assert 0 <= float(chance.split()[0]) <= 1
    assert expert == "1.00 (1.00–1.00)"
    assert 4 <= float(actions) <= 20


def test_a_suite_without_an_expert_and_without_a_list_of_actions() -> None:
    assert envs.row("helpers.suites:CountSuite", 2, 2)[6:] == ["1.00 (1.00–1.00)", "–", "–"]


def test_a_suite_whose_packages_are_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise UserError(f"{name} needs packages; run: pip install 'complementary-rl[acme]'")

    monkeypatch.setattr(envs, "make_suite", missing)
    assert envs.row("acme", 1, 1) == ["acme", "–", "–", "pip install 'complementary-rl[acme]'", *["–"] * 5]


def test_a_suite_whose_data_are_missing_says_so_in_a_line() -> None:
    assert envs.row("swe", 1, 1) == ["swe", "–", "–", "suite 'swe': missing a required argument: 'data'", *["–"] * 5]
