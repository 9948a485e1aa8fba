"""All stored walkthroughs of ALFWorld played by our engine, the scripted player on the same games, and the engine's speed.

    python -m benchmarks.alfworld_walkthroughs ../shared/data/alfworld/games.jsonl.xz

A walkthrough must win with its last command and not before, and each of its commands must do something. The player explores without
knowing where things are, in the games given and in generated ones.
"""

import argparse
import itertools
import json
import lzma
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from benchmarks.synthetic import print_machine, print_table
from complementary_rl.envs.alfworld.game import NOTHING, Game
from complementary_rl.envs.alfworld.pddl import House, TaskType, read_problem
from complementary_rl.envs.alfworld.player import Player
from complementary_rl.envs.alfworld.suite import Alfworld

_TURNS = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("games", type=Path, help="a .jsonl or .jsonl.xz file with walkthroughs")
    parser.add_argument("--limit", type=int, default=None, help="only the first so many games")
    options = parser.parse_args()
    print_machine()
    faults, loads, steps, rows = [], [], [], []
    for row in itertools.islice(read(options.games), options.limit):
        start = process_time()
        house = read_problem(row["pddl_problem"])
        loads.append(process_time() - start)
        faults += [f"{row['id']}: {fault}" for fault in walk(house, row["walkthrough"], steps)]
        rows.append((TaskType(house.goal.task), turns_of_player(house, row["task"])))
    print(f"{len(rows) - len(faults)} of {len(rows)} walkthroughs win; a game is loaded in {1e3 * np.median(loads):.2f} ms")
    print(f"{len(steps) / sum(steps):,.0f} commands a second of processor time, each with the check of the goal\n")
    for fault in faults:
        print(fault)
    suite = Alfworld()
    generated = [
        (suite.house(task).goal.task, turns_of_player(suite.house(task), suite.wording(task)))
        for split in ("train", "heldout")
        for task in suite.tasks(split)
    ]
    print_table(
        ["scripted player", "games", f"won in {_TURNS}", "won in 30", "median turns"],
        [*table("given", rows), *table("generated", generated)],
    )
    sys.exit(bool(faults))


def read(path: Path) -> Iterator[dict[str, Any]]:
    with lzma.open(path) if path.suffix == ".xz" else path.open("rb") as lines:
        yield from map(json.loads, lines)


def walk(house: House, commands: list[str], seconds: list[float]) -> Iterator[str]:
    """What goes wrong on the way; adds the seconds of each command."""
    game = Game(house)
    for number, command in enumerate(commands, start=1):
        start = process_time()
        answer, won = game.do(command), game.won
        seconds.append(process_time() - start)
        if answer == NOTHING or won != (number == len(commands)):
            yield f"command {number}, {command!r}: {answer} (won: {won})"
            return


def turns_of_player(house: House, wording: str) -> float:
    """Turns the scripted player needs; infinite when it gives up."""
    game = Game(house)
    commands = Player().play(f"{game.opening()}\n\nYour task is to: {wording}.")
    command = next(commands)
    for turn in itertools.count(1):
        observation = game.do(command)
        if game.won:
            return turn
        if command == "look":
            break
        command = commands.send(observation)
    return np.inf


def table(name: str, rows: Iterable[tuple[TaskType, float]]) -> Iterator[list[str]]:
    by_task: dict[str, list[float]] = {"all": []}
    for task, turns in rows:
        by_task["all"].append(turns)
        by_task.setdefault(task, []).append(turns)
    for task, turns in by_task.items():
        won = [f"{np.mean(np.array(turns) <= limit):.1%}" for limit in (_TURNS, 30)]
        yield [f"{name}, {task}", f"{len(turns):,}", *won, f"{np.median(turns):.0f}"]


if __name__ == "__main__":
    main()
