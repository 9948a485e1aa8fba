"""MiniHack levels in the paper's setting: fog of war, a text map, compass actions by name, 30 turns, reward 1 or 0."""

from collections.abc import Sequence
from typing import Any

from complementary_rl.envs.minihack.actions import perform
from complementary_rl.envs.minihack.game import Game, compile_level, map_origin
from complementary_rl.envs.minihack.levels import LEVELS, Level
from complementary_rl.envs.minihack.view import OBSERVE, View
from complementary_rl.envs.protocol import StepResult, Suite
from complementary_rl.errors import UserError
from complementary_rl.seeds import derive_seed
from complementary_rl.types import Split, Task

_RULES = """\
You are the hero, @, in a level of NetHack seen from above. Reach the staircase down, shown as >. The map shows what you have seen \
so far; after each action you are told your hit points (HP), the map with its legend, where notable things are relative to you \
(such as "2 north 1 east"), and the game's messages. You have {turns} actions.{hint}

Answer with exactly one action:
- north, north-east, east, south-east, south, south-west, west or north-west: one step that way; a step into a monster attacks it
- search: stay for a turn and look for hidden things next to you"""
_KEY_RULES = """
- pick up: take what lies where you stand
- apply key DIRECTION: unlock and open the locked door next to you in that direction, such as: apply key north"""


class MiniHackLevels(Suite):
    """Suite ``minihack/<level>``, one for each name in `levels.LEVELS`.

    `train_tasks` and `heldout_tasks` levels are made by NetHack's generator from seeds that `seed` gives; the seed of an episode
    decides only the game's dice. At most `max_turns` actions. Raises UserError for an unknown level or numbers out of range.
    """

    def __init__(self, level: str, *, train_tasks: int = 256, heldout_tasks: int = 64, max_turns: int = 30, seed: int = 0) -> None:
        if level not in LEVELS:
            raise UserError(f"there is no MiniHack level {level!r}; there are: {', '.join(LEVELS)}")
        self.level: Level = LEVELS[level]
        self.name = f"minihack/{level}"
        if train_tasks < 1 or heldout_tasks < 0 or max_turns < 1:
            raise UserError(
                f"{self.name}: train_tasks ({train_tasks}) and max_turns ({max_turns}) must be at least 1, "
                f"heldout_tasks ({heldout_tasks}) at least 0"
            )
        self.max_turns = max_turns
        hint = f" {self.level.hint}" if self.level.hint else ""
        self.instructions = _RULES.format(turns=max_turns, hint=hint) + (_KEY_RULES if self.level.keys else "")
        counts: dict[Split, int] = {"train": train_tasks, "heldout": heldout_tasks}
        self._tasks = {split: [self._task(split, index, seed) for index in range(count)] for split, count in counts.items()}

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._tasks[split]

    def make_env(self) -> "MiniHackEnv":
        return MiniHackEnv(self.level, self.max_turns)

    def _task(self, split: Split, index: int, seed: int) -> Task:
        level_seed = derive_seed("minihack-level", self.name, split, seed, index)
        return Task(f"{self.name}/{split}-{index}", self.name, self.level.description, level_seed, split, scope=self.name)


class MiniHackEnv:
    """One episode at a time on levels of one family."""

    def __init__(self, level: Level, max_turns: int) -> None:
        self._level = level
        self._max_turns = max_turns
        # On MiniHack's key levels picking up is an action of its own.
        self._game = Game(OBSERVE, autopickup=not level.keys)
        self._compiled = compile_level(level.des_file())
        self._view = View(self._game, *(level.origin or map_origin(*level.size)), *level.size)
        self._turns = 0

    def reset(self, task: Task, seed: int) -> tuple[str, dict[str, Any]]:
        self._game.start(self._compiled, core=derive_seed("minihack-dice", task.id, seed), level_seed=task.seed)
        self._turns = 0
        return self._view.opening(self._max_turns), {}

    def step(self, action: str) -> StepResult:
        self._turns += 1
        left = self._max_turns - self._turns
        understood = perform(self._game, action, keys=self._level.keys)
        if self._game.won:
            return _last_words(self._view.messages(), "You reached the staircase down."), 1.0, True, False, {"success": True}
        if self._game.over:
            return _last_words(self._view.messages(), "You died."), 0.0, True, False, {"success": False}
        observation = self._view.render(left)
        if not understood:
            observation = f"That is not an action here; nothing happened.\n{observation}"
        return observation, 0.0, False, left <= 0, {"success": False}

    def close(self) -> None:
        self._game.close()


def _last_words(messages: str, end: str) -> str:
    return f"Message: {messages}\n{end}" if messages else end
