"""Our engine beside the original: the same games and commands, the same words, admissible commands and wins.

Needs the extra ``alfworld`` (minutes of compiling), so it runs nightly: ``pytest -m slow tests/envs/test_alfworld_reference.py``.
"""

import json
import lzma
import os
from pathlib import Path
from typing import Any

import pytest

from complementary_rl.envs.alfworld.game import Game
from complementary_rl.envs.alfworld.generator import generate
from complementary_rl.envs.alfworld.pddl import TaskType, read_problem
from complementary_rl.envs.alfworld.player import Player
from complementary_rl.seeds import rng

textworld = pytest.importorskip("textworld", reason="needs the extra 'alfworld'")
pytest.importorskip("alfworld", reason="needs the extra 'alfworld'")
pytest.importorskip("fast_downward", reason="needs the extra 'alfworld'")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

STEPS = 25
OFFICIAL = 24
# What leads deep into a game, where commands drawn evenly would mostly walk about.
WEIGHTS = {
    "take": 6,
    "move": 6,
    "heat": 6,
    "clean": 6,
    "cool": 6,
    "slice": 6,
    "use": 6,
    "open": 4,
    "close": 2,
    "examine": 2,
    "help": 0.2,
}
ODD = ("go to nowhere 1", "examine", "take mug 9 from fridge 1", "put x 1 in y 1")


def rows() -> list[dict[str, str]]:
    """Generated games of each type and, where the shared data are there, official ones."""
    found = []
    for index, task in enumerate(TaskType):
        identity, wording, text = generate(0, "train", index, task)
        found.append({"id": identity, "task": wording, "pddl_problem": text})
    path = Path(os.environ.get("CRL_SHARED_DATA", ""), "alfworld", "games.jsonl.xz")
    if path.is_file():
        with lzma.open(path) as lines:
            texts = list(lines)
        found += [json.loads(texts[index]) for index in rng("alfworld-reference").integers(len(texts), size=OFFICIAL)]
    return found


class Original:
    """A game in TextWorld, named as alfworld names it."""

    def __init__(self, row: dict[str, str], folder: Path) -> None:
        from alfworld.agents.utils.misc import Demangler
        from alfworld.info import ALFRED_PDDL_PATH, ALFRED_TWL2_PATH
        from textworld.envs import PddlEnv

        grammar = Path(ALFRED_TWL2_PATH).read_text().replace("UNKNOWN GOAL", row["task"])
        game = {"pddl_domain": Path(ALFRED_PDDL_PATH).read_text(), "grammar": grammar, "pddl_problem": row["pddl_problem"]}
        path = folder / "game.tw-pddl"
        path.write_text(json.dumps(game))
        self.env = PddlEnv(textworld.EnvInfos(admissible_commands=True, won=True))
        self.env.load(str(path))
        names = Demangler(game_infos=self.env._entity_infos)
        for info in self.env._entity_infos.values():
            info.name = names.demangle_alfred_name(info.id)

    def reset(self) -> tuple[str, list[str], bool]:
        return self._told(self.env.reset())

    def step(self, command: str) -> tuple[str, list[str], bool]:
        return self._told(self.env.step(command)[0])

    def _told(self, state: Any) -> tuple[str, list[str], bool]:
        return state.feedback, list(state.admissible_commands), bool(state["won"])


class Both:
    """A game in the original and in our engine at once, which must agree on everything after every command."""

    def __init__(self, row: dict[str, str], folder: Path) -> None:
        self.original, self.ours = Original(row, folder), Game(read_problem(row["pddl_problem"]))
        self.path = [row["id"]]
        self.said, self.possible, self.won = self.original.reset()
        assert f"{self.ours.opening()}\n\nYour task is to: {row['task']}." == self.said, row["id"]

    def do(self, command: str) -> str:
        self.path.append(command)
        told = self.said, self.possible, self.won = self.original.step(command)
        assert (self.ours.do(command), self.ours.admissible(), self.ours.won) == told, self.path
        return self.said


def test_random_play(tmp_path: Path) -> None:
    for row in rows():
        random, both = rng("alfworld-reference", row["id"]), Both(row, tmp_path)
        for _ in range(STEPS):
            weights = [WEIGHTS.get(command.split()[0], 1) for command in both.possible]
            command = random.choice(both.possible, p=[weight / sum(weights) for weight in weights])
            both.do(str(random.choice(ODD) if random.random() < 0.05 else command))
            if both.won:
                break


def test_whole_games(tmp_path: Path) -> None:
    for row in rows():
        play_to_the_end(row, tmp_path)


def play_to_the_end(row: dict[str, str], folder: Path) -> Both:
    """The scripted player's game until it wins, with a look at something after each of its commands."""
    random, both = rng("alfworld-reference", row["id"]), Both(row, folder)
    commands = Player().play(both.said)
    command = next(commands)
    while True:
        answer = both.do(command)
        if both.won:
            return both
        assert command != "look", both.path
        both.do(str(random.choice([text for text in both.possible if text.startswith("examine")])))
        command = commands.send(answer)
