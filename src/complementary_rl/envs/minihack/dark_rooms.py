"""Recurring dark rooms: named, unlit NetHack rooms whose hidden exit stays where it is, so that remembering it pays.

The hero starts anywhere out of sight of the exit and sees only the cells around it; in a few turns it can search a part of the
room, not all of it. What an earlier episode found out is worth knowing in the next one.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from numpy.random import Generator

from complementary_rl.envs.minihack.compass import KEYS, towards
from complementary_rl.envs.minihack.game import NEEDS, LevelGame, compile_level, map_origin
from complementary_rl.envs.names import COUNT, titles
from complementary_rl.envs.options import require_at_least
from complementary_rl.envs.places import named
from complementary_rl.envs.protocol import Policy, StepResult, Suite
from complementary_rl.errors import UserError
from complementary_rl.seeds import derive_seed, rng
from complementary_rl.types import Split, Task

_REGIONS = (("north-west", "north", "north-east"), ("west", "centre", "east"), ("south-west", "south", "south-east"))
_CLAIM = re.compile(r"\b(not\s+)?in\s+the\s+(" + "|".join(sorted(sum(_REGIONS, ()), key=len, reverse=True)) + r")\b", re.IGNORECASE)
_ACTIONS = tuple(KEYS)


class DarkRooms(Suite):
    """Suite ``minihack/dark-rooms``.

    `rooms` train and `heldout_rooms` held-out rooms of `size` × `size` cells (a multiple of 3, so that the nine regions are
    equal), `max_turns` actions per episode. `seed` chooses the names and the exits. Each room is its own bank scope. From actor step
    `redraw_step` on every exit is in another region of its room, so that what was learnt about it is wrong. Raises UserError for
    options that are out of range.
    """

    name = "minihack/dark-rooms"
    needs = NEEDS
    instructions = (
        "You are in a dark room of NetHack and must step onto its exit, a staircase down. You see only the cells next to you. "
        "Places are given as column (1 is west) and row (1 is north). Answer with one word: "
        "north, north-east, east, south-east, south, south-west, west or north-west."
    )

    def __init__(
        self,
        rooms: int = 16,
        heldout_rooms: int = 16,
        max_turns: int = 16,
        seed: int = 0,
        size: int = 15,
        redraw_step: int | None = None,
    ) -> None:
        if rooms < 1 or heldout_rooms < 0 or rooms + heldout_rooms > COUNT:
            raise UserError(
                f"{self.name}: rooms ≥ 1 and heldout_rooms ≥ 0 must add up to at most {COUNT}, not {rooms} + {heldout_rooms}"
            )
        if size not in (6, 9, 12, 15, 18):
            raise UserError(f"{self.name}: size is {size}; it must be 6, 9, 12, 15 or 18")
        require_at_least(self.name, 1, max_turns=max_turns)
        if redraw_step is not None:
            require_at_least(self.name, 0, redraw_step=redraw_step)
        self.redraw_step = redraw_step
        self.max_turns = max_turns
        self.size = size
        order = titles(rng("dark-rooms", seed, "names"))
        # From opposite ends, so that more rooms of one split leave the other split as it is.
        self._tasks: dict[Split, list[Task]] = {
            "train": [self._task(title, "train") for title in order[:rooms]],
            "heldout": [self._task(title, "heldout") for title in order[COUNT - heldout_rooms :]],
        }
        # By what distinguishes a room from itself redrawn.
        self._exits: dict[tuple[str, int], tuple[int, int]] = {}
        for task in (task for tasks in self._tasks.values() for task in tasks):
            draws = rng("dark-rooms", seed, task.description)
            self._exits[task.id, task.seed] = self._draw_exit(draws)
            self._exits[task.id, _redrawn(task).seed] = self._draw_exit(draws, elsewhere=self.region(task))

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._tasks[split]

    def make_env(self) -> "DarkRoomEnv":
        return DarkRoomEnv(self)

    def task_at(self, task: Task, step: int) -> Task:
        return task if self.redraw_step is None or step < self.redraw_step else _redrawn(task)

    def judge_entry(self, task: Task, text: str) -> bool | None:
        claims = {(match[2].lower(), not match[1]) for match in _CLAIM.finditer(text)}
        if not claims:
            return None
        where = self.region(task)
        return all((region == where) == positive for region, positive in claims)

    def expert(self, task: Task, seed: int) -> Policy:
        exit_x, exit_y = self.exit(task)

        def walk(observation: str) -> str:
            _, x, y = observation.split(",")[0].split()
            return towards(exit_x - int(x), exit_y - int(y))

        return walk

    def exit(self, task: Task) -> tuple[int, int]:
        """Column and row (1 … size) of a room's exit. Raises UserError if the task is not of this suite."""
        if (task.id, task.seed) not in self._exits:
            raise UserError(f"{self.name}: there is no room {task.id!r} in this suite; was it made with other options?")
        return self._exits[task.id, task.seed]

    def region(self, task: Task) -> str:
        """Which of the nine regions of the room holds its exit."""
        return self._region(self.exit(task))

    def _region(self, exit_cell: tuple[int, int]) -> str:
        x, y = exit_cell
        return _REGIONS[(y - 1) * 3 // self.size][(x - 1) * 3 // self.size]

    def _task(self, title: str, split: Split) -> Task:
        place = named(self.name, title)
        return Task(place.id, self.name, f"Find the exit of the {title}.", derive_seed(place.id), split, scope=place.scope)

    def _draw_exit(self, draws: Generator, elsewhere: str | None = None) -> tuple[int, int]:
        """A cell; not in the region `elsewhere`."""
        while True:
            x, y = (int(value) for value in draws.integers(1, self.size + 1, size=2))
            if self._region((x, y)) != elsewhere:
                return x, y


def _redrawn(task: Task) -> Task:
    return replace(task, seed=derive_seed(task.id, "redrawn"))


class DarkRoomEnv:
    """One episode at a time in one of the suite's rooms."""

    def __init__(self, suite: DarkRooms) -> None:
        self._suite = suite
        self._origin = map_origin(suite.size, suite.size)
        self._game = LevelGame()
        self._exit = (1, 1)
        self._unseen_glyph = -1
        self._turns = 0

    def reset(self, task: Task, seed: int) -> tuple[str, dict[str, Any]]:
        self._exit = self._suite.exit(task)
        self._game.start(compile_level(_description(self._suite.size, self._exit)), core=derive_seed("dark-rooms", task.id, seed))
        # What NetHack displays for the exit's cell changes once, when the hero comes into its sight, and is remembered.
        self._unseen_glyph = self._exit_glyph()
        self._turns = 0
        return self._place(), {"actions": _ACTIONS}

    def step(self, action: str) -> StepResult:
        self._turns += 1
        key = KEYS.get(action.strip().lower())
        if key is None:
            return f"unknown action; {self._place()}", 0.0, False, self._turns >= self._suite.max_turns, {"success": False}
        self._game.press(key)
        if self._game.won:
            return f"{self._coordinates()}, out", 1.0, True, False, {"success": True}
        assert not self._game.over, f"the hero died in an empty room: {self._game.heard}"
        return self._place(), 0.0, False, self._turns >= self._suite.max_turns, {"success": False}

    def close(self) -> None:
        self._game.close()

    def _place(self) -> str:
        if self._exit_glyph() == self._unseen_glyph:
            return self._coordinates()
        x, y = self._position()
        return f"{self._coordinates()}, exit {towards(self._exit[0] - x, self._exit[1] - y)}"

    def _coordinates(self) -> str:
        x, y = self._position()
        return f"at {x} {y}"

    def _position(self) -> tuple[int, int]:
        x, y = self._game.position
        return x - self._origin[0] + 1, y - self._origin[1] + 1

    def _exit_glyph(self) -> int:
        return self._game.glyph(self._exit[0] + self._origin[0] - 1, self._exit[1] + self._origin[1] - 1)


def _description(size: int, exit_cell: tuple[int, int]) -> str:
    """The room as a des-file: dark and empty, a staircase down, the hero anywhere but on the cells around it."""
    x, y = exit_cell[0] - 1, exit_cell[1] - 1
    last = size - 1
    sight = f"({max(x - 1, 0)},{max(y - 1, 0)},{min(x + 1, last)},{min(y + 1, last)})"
    rows = "\n".join(["." * size] * size)
    return (
        f"MAZE: \"mylevel\", ' '\nFLAGS:hardfloor\nINIT_MAP: solidfill,' '\nGEOMETRY:center,center\nMAP\n{rows}\nENDMAP\n"
        f'REGION:(0,0,{last},{last}),unlit,"ordinary"\nSTAIR:({x},{y}),down\nBRANCH:(0,0,{last},{last}),{sight}\n'
    )
