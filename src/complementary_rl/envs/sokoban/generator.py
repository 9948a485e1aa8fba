"""Rooms by reverse play: begin solved, pull the boxes off their targets at random, and keep what the solver finds neither easy nor hard.

A room belongs to the split that a hash of its picture says, the same for all its rotations and mirror images: no held-out room is
a training room in disguise, whatever the seeds.
"""

from dataclasses import dataclass

import numpy as np

from complementary_rl.envs.sokoban.board import Boxes, Room, symmetric
from complementary_rl.envs.sokoban.solver import solve
from complementary_rl.errors import UserError
from complementary_rl.seeds import derive_seed, rng
from complementary_rl.types import Split

_TRIES = 2000
_REVERSE_STEPS = 60
_PULLS = 0.7
_LEAST_FLOOR = 0.6
_HELDOUT_SHARE = 5


@dataclass(frozen=True, slots=True)
class Difficulty:
    """`size` cells a side, walls included; the shortest solution takes `least` to `most` actions."""

    size: int
    boxes: int
    least: int
    most: int


def make_room(difficulty: Difficulty, split: Split, seed: int) -> tuple[Room, list[str]]:
    """The room of a seed and its shortest solution. Raises UserError when many random rooms held none of this difficulty."""
    for attempt in range(_TRIES):
        random = rng("sokoban", seed, attempt)
        room = _scramble(_solved(difficulty, random), random)
        if room.boxes & room.targets or split_of(room) != split:
            continue
        solution = solve(room, difficulty.most)
        if solution is not None and len(solution) >= difficulty.least:
            return room, solution
    raise UserError(
        f"sokoban: {_TRIES} random rooms of size {difficulty.size} with {difficulty.boxes} boxes held none whose shortest solution takes "
        f"{difficulty.least} to {difficulty.most} actions; widen min_moves and max_moves"
    )


def split_of(room: Room) -> Split:
    """The split a room may be in: one of five is held out."""
    picture = min("\n".join(rows) for rows in symmetric(room.draw(room.player, room.boxes)))
    return "heldout" if derive_seed("sokoban-split", picture) % _HELDOUT_SHARE == 0 else "train"


def _solved(difficulty: Difficulty, random: np.random.Generator) -> Room:
    """A random cave whose boxes all stand on their targets. It grows cell by cell, so that it hangs together."""
    size = difficulty.size
    inside = {row * size + column for row in range(1, size - 1) for column in range(1, size - 1)}
    wanted = int(random.integers(int(np.ceil(_LEAST_FLOOR * len(inside))), len(inside) + 1))
    floor: set[int] = set()
    edge = sorted(inside)
    for draw in random.random(wanted):
        cell = edge[int(draw * len(edge))]
        floor.add(cell)
        edge = sorted({near + step for near in floor for step in (-size, size, -1, 1)} & inside - floor)
    *targets, player = (int(cell) for cell in random.choice(sorted(floor), difficulty.boxes + 1, replace=False))
    return Room(size, frozenset(floor), frozenset(targets), frozenset(targets), player)


def _scramble(room: Room, random: np.random.Generator) -> Room:
    """Steps backwards from the solved room, most of them pulling a box along where there is one to pull."""
    player, boxes = room.player, room.boxes
    steps = list(room.directions().values())
    choices, draws = random.integers(4, size=_REVERSE_STEPS * len(boxes)), random.random(_REVERSE_STEPS * len(boxes))
    for choice, draw in zip(choices, draws, strict=True):
        step = steps[choice]
        to = player + step
        if to in room.floor and to not in boxes:
            boxes = _pulled(boxes, player - step, player) if draw < _PULLS else boxes
            player = to
    return Room(room.width, room.floor, room.targets, boxes, player)


def _pulled(boxes: Boxes, box: int, to: int) -> Boxes:
    return (boxes - {box}) | {to} if box in boxes else boxes
