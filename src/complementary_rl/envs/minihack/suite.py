"""MiniHack levels in the paper's setting: fog of war, a text map, compass actions by name, 30 turns, reward 1 or 0."""

from collections.abc import Sequence
from typing import Any

from complementary_rl.envs.minihack.actions import perform
from complementary_rl.envs.minihack.compass import STEPS
from complementary_rl.envs.minihack.explorer import explore
from complementary_rl.envs.minihack.game import NEEDS, Game, LevelGame, compile_level, map_origin
from complementary_rl.envs.minihack.levels import LEVELS, Level
from complementary_rl.envs.minihack.view import OBSERVE, View, check_look
from complementary_rl.envs.playing import scripted
from complementary_rl.envs.protocol import Policy, StepResult, Suite
from complementary_rl.errors import UserError
from complementary_rl.seeds import derive_seed
from complementary_rl.types import Split, Task

_RULES = """\
You are the hero, @, in a level of NetHack seen from above. Reach the staircase down, shown as >. {told}, where \
notable things are relative to you (such as "2 north 1 east"), and the game's messages. You have {turns} actions.{hint}

Answer with exactly one action:
- north, north-east, east, south-east, south, south-west, west or north-west: one step that way; a step into a monster attacks it
- search: stay for a turn and look for hidden things next to you"""
_TOLD = {
    "map": "The map shows what you have seen so far; after each action you are told your hit points (HP), the map with its legend",
    "language": "After each action you are told your hit points (HP), what is around you",
}
_KEY_RULES = """
- pick up: take what lies where you stand
- apply key DIRECTION: unlock and open the locked door next to you in that direction, such as: apply key north"""


class SeededLevels(Suite):
    """What the suites of MiniHack levels share: tasks that are seeds of NetHack's level generator, and how a game is looked at.

    A subclass calls `draw_tasks` once it can describe them.
    """

    needs = NEEDS

    def __init__(
        self, name: str, *, train_tasks: int, heldout_tasks: int, max_turns: int, fresh_levels: bool, view: str, crop: int
    ) -> None:
        if train_tasks < 1 or heldout_tasks < 0 or max_turns < 1:
            raise UserError(
                f"{name}: train_tasks ({train_tasks}) and max_turns ({max_turns}) must be at least 1, "
                f"heldout_tasks ({heldout_tasks}) at least 0"
            )
        check_look(view, crop)
        self.name = name
        self.max_turns = max_turns
        self.fresh_levels = fresh_levels
        self.view, self.crop = view, crop
        self._counts: dict[Split, int] = {"train": train_tasks, "heldout": heldout_tasks}
        self._tasks: dict[Split, list[Task]] = {}

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._tasks[split]

    def draw_tasks(self, description: str, seed: int) -> None:
        """Make the tasks, all of one description and on one shelf of the bank; `seed` draws their levels."""
        self._tasks = {
            split: [
                Task(
                    f"{self.name}/{split}-{index}",
                    self.name,
                    description,
                    derive_seed("minihack-level", self.name, split, seed, index),
                    split,
                    scope=self.name,
                )
                for index in range(count)
            ]
            for split, count in self._counts.items()
        }


class MiniHackLevels(SeededLevels):
    """Suite ``minihack/<level>``, one for each name in `levels.LEVELS`.

    `train_tasks` and `heldout_tasks` levels are made by NetHack's generator from seeds that `seed` gives; the seed of an episode
    decides only the game's dice, unless `fresh_levels` makes a new level for every episode. At most `max_turns` actions. `view` and
    `crop` are `View`'s `layout` and `crop`. Raises UserError for an unknown level or options out of range.
    """

    def __init__(
        self,
        level: str,
        *,
        train_tasks: int = 256,
        heldout_tasks: int = 64,
        max_turns: int = 30,
        fresh_levels: bool = False,
        view: str = "map",
        crop: int = 0,
        seed: int = 0,
    ) -> None:
        if level not in LEVELS:
            raise UserError(f"there is no MiniHack level {level!r}; there are: {', '.join(LEVELS)}")
        self.level: Level = LEVELS[level]
        super().__init__(
            f"minihack/{level}",
            train_tasks=train_tasks,
            heldout_tasks=heldout_tasks,
            max_turns=max_turns,
            fresh_levels=fresh_levels,
            view=view,
            crop=crop,
        )
        self.actions = (*STEPS, "search", *(("pick up", "apply key") if self.level.keys else ()))
        hint = f" {self.level.hint}" if self.level.hint else ""
        self.instructions = _RULES.format(turns=max_turns, hint=hint, told=_TOLD[view]) + (_KEY_RULES if self.level.keys else "")
        self.draw_tasks(self.level.description, seed)

    def expert(self, task: Task, seed: int) -> Policy | None:
        """A hero who explores and reads what an actor reads; None where boulders are to be pushed, and without the whole map."""
        if self.view != "map" or self.crop or self.level.boulders:
            return None
        return scripted(lambda opening: explore(opening, self.level.size))

    def make_env(self) -> "MiniHackEnv":
        return MiniHackEnv(self)


class MiniHackEnv:
    """One episode at a time on levels of one family."""

    def __init__(self, suite: MiniHackLevels) -> None:
        self._suite = suite
        level = suite.level
        # On MiniHack's key levels picking up is an action of its own.
        self._game = LevelGame(OBSERVE, autopickup=not level.keys)
        self._compiled = compile_level(level.des_file())
        self._view = View(self._game, (*(level.origin or map_origin(*level.size)), *level.size), layout=suite.view, crop=suite.crop)
        self._turns = 0

    def reset(self, task: Task, seed: int) -> tuple[str, dict[str, Any]]:
        self._game.start(
            self._compiled,
            core=derive_seed("minihack-dice", task.id, seed),
            level_seed=level_seed(task, seed, fresh=self._suite.fresh_levels),
        )
        self._turns = 0
        return self._view.opening(self._suite.max_turns), {"actions": self._suite.actions}

    def step(self, action: str) -> StepResult:
        self._turns += 1
        understood = perform(self._game, action, keys=self._suite.level.keys)
        return end_of_step(
            self._game, self._view, self._suite.max_turns - self._turns, understood, "You reached the staircase down."
        )

    def close(self) -> None:
        self._game.close()


def level_seed(task: Task, seed: int, *, fresh: bool) -> int:
    """What makes the level of the episode `seed` of `task`: the task, or with `fresh` the episode too."""
    return derive_seed("minihack-fresh-level", task.id, seed) if fresh else task.seed


def end_of_step(game: Game, view: View, left: int, understood: bool, done: str) -> StepResult:
    """What a step returns when the game stands as it does and `left` actions are left; `done` says what success was."""
    if game.won:
        return _last_words(view.messages(), done), 1.0, True, False, {"success": True}
    if game.over:
        return _last_words(view.messages(), "You died." if game.died else "You failed."), 0.0, True, False, {"success": False}
    observation = view.render(left)
    if not understood:
        observation = f"That is not an action here; nothing happened.\n{observation}"
    return observation, 0.0, False, left <= 0, {"success": False}


def _last_words(messages: str, end: str) -> str:
    return f"Message: {messages}\n{end}" if messages else end
