"""Sokoban as a suite: rooms of one size and one range of difficulty, seen whole."""

import functools
from collections.abc import Sequence
from typing import Any

from complementary_rl.envs.places import Place, places
from complementary_rl.envs.protocol import Policy, StepResult, Suite
from complementary_rl.envs.sokoban.board import Room
from complementary_rl.envs.sokoban.generator import Difficulty, make_room
from complementary_rl.envs.wording import bare
from complementary_rl.errors import UserError
from complementary_rl.seeds import derive_seed
from complementary_rl.types import Split, Task

ACTIONS = ("up", "down", "left", "right")
_SIZES, _BOXES = range(5, 9), range(1, 4)
_RULES = """\
You push boxes in a room seen from above. Signs: # wall, _ floor, . target, $ box, * box on a target, @ you, + you on a target. \
You push a box by walking into it; it moves one cell if the cell behind it is free. You cannot pull, and you cannot push two boxes at \
once. Put every box on a target within {turns} actions.

Answer with one word: up, down, left or right."""


class Sokoban(Suite):
    """Suite ``sokoban``.

    `levels` train and `heldout_levels` held-out rooms of `size` × `size` cells, walls included, with `boxes` boxes, whose shortest
    solution takes `min_moves` to `max_moves` of the `max_turns` actions. `scope` "shared" files experience of all rooms together; with
    "level" each room has a name and a shelf of the bank of its own, for few rooms that come back. The reward is 1 for solving; with
    `dense_reward` gym-sokoban's: −0.1 an action, ±1 for a box put on or taken off a target, 10 for solving. `seed` draws the rooms.
    Raises UserError for options out of range.
    """

    name = "sokoban"

    def __init__(
        self,
        size: int = 6,
        boxes: int = 2,
        levels: int = 256,
        heldout_levels: int = 64,
        max_turns: int = 30,
        min_moves: int = 4,
        max_moves: int = 20,
        scope: str = "shared",
        dense_reward: bool = False,
        seed: int = 0,
    ) -> None:
        if size not in _SIZES or boxes not in _BOXES:
            raise UserError(f"sokoban: size must be 5 to 8 and boxes 1 to 3, not {size} and {boxes}")
        if not 1 <= min_moves <= max_moves <= max_turns:
            raise UserError(f"sokoban: 1 ≤ min_moves ≤ max_moves ≤ max_turns must hold, not {min_moves}, {max_moves}, {max_turns}")
        self.max_turns = max_turns
        self.instructions = _RULES.format(turns=max_turns)
        self.dense_reward = dense_reward
        self._difficulty = Difficulty(size, boxes, min_moves, max_moves)
        self._tasks = {
            split: [self._task(split, index, seed, place) for index, place in enumerate(of_split)]
            for split, of_split in places(self.name, scope, levels, heldout_levels, seed).items()
        }
        # Rooms are made when first played: making all at once would take seconds.
        self.room = functools.lru_cache(maxsize=levels + heldout_levels)(self._make)

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._tasks[split]

    def make_env(self) -> "SokobanEnv":
        return SokobanEnv(self)

    def expert(self, task: Task, seed: int) -> Policy:
        plan = iter(self.room(task)[1])
        return lambda _: next(plan)

    def _make(self, task: Task) -> tuple[Room, list[str]]:
        return make_room(self._difficulty, task.split, task.seed)

    def _task(self, split: Split, index: int, seed: int, place: Place) -> Task:
        size, boxes = self._difficulty.size, self._difficulty.boxes
        goal = "Push the box onto the target" if boxes == 1 else f"Push all {boxes} boxes onto the targets"
        where = f"the {place.title}, a Sokoban room" if place.title else "a Sokoban room"
        return Task(
            place.id,
            self.name,
            f"{goal} in {where} of {size}x{size} cells. Hazards: a box in a corner or along a wall may never come off it again.",
            derive_seed("sokoban-room", split, seed, index),
            split,
            scope=place.scope,
        )


class SokobanEnv:
    """One episode at a time. Nothing is left to chance, so the seed of an episode does not matter."""

    def __init__(self, suite: Sokoban) -> None:
        self._suite = suite

    def reset(self, task: Task, seed: int) -> tuple[str, dict[str, Any]]:
        del seed
        self._room = self._suite.room(task)[0]
        self._directions = self._room.directions()
        self._player, self._boxes = self._room.player, self._room.boxes
        self._turns = 0
        return self._view(), {"actions": ACTIONS}

    def step(self, action: str) -> StepResult:
        self._turns += 1
        step = self._directions.get(bare(action))
        after = None if step is None else self._room.move(self._player, self._boxes, step)
        before = self._placed()
        if after is not None:
            self._player, self._boxes = after
        solved = self._placed() == len(self._boxes)
        reward = float(solved)
        if self._suite.dense_reward:
            reward = self._placed() - before - 0.1 + 10.0 * solved
        note = "That is no action here; nothing moved.\n" if step is None else "" if after else "Blocked; nothing moved.\n"
        truncated = not solved and self._turns >= self._suite.max_turns
        return note + self._view(), reward, solved, truncated, {"success": solved}

    def close(self) -> None:
        pass

    def _placed(self) -> int:
        return len(self._boxes & self._room.targets)

    def _view(self) -> str:
        rows = self._room.draw(self._player, self._boxes)
        left = self._suite.max_turns - self._turns
        return "\n".join([*rows, f"{self._placed()} of {len(self._boxes)} boxes on targets, {left} actions left"])
