"""The table of small actors: the shipped one plays through the real runner, and what cannot be played says why."""

import argparse

from benchmarks import success
from complementary_rl.config import ModelConfig
from complementary_rl.engines.factory import make_local_engine


def test_the_embedded_actor_beside_chance_and_expert() -> None:
    options = argparse.Namespace(options={}, episodes=2, seeds=2, temperature=0.5, new_tokens=8, observation_tokens=64)
    engine = make_local_engine("actor", ModelConfig(path="embedded:actor", device="cpu"))
    try:
        name, chance, expert, train, heldout = success.row("helpers.runs:Parity", {"embedded:actor": engine}, options)
        assert (name, expert) == ("helpers.runs:Parity", "–")
        assert all(0 <= float(cell.split()[0]) <= 1 for cell in (chance, train, heldout))
        assert success.row("swe", {"embedded:actor": engine}, options) == [
            "swe",
            "suite 'swe': missing a required argument: 'data'",
            *["–"] * 3,
        ]
    finally:
        engine.close()
