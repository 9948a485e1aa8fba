"""Any level that MiniHack registers with Gymnasium, by its id: ``minihack/Corridor-R2-v0`` is ``MiniHack-Corridor-R2-v0``.

The level, the hero, the goal and what ends an episode are MiniHack's; view, actions in words, seeds and turn limit are ours.
"""

import difflib
from collections.abc import Iterator
from typing import Any

from complementary_rl.envs.minihack.commands import Commands
from complementary_rl.envs.minihack.game import ENDLESS, KEY_CODES, Game
from complementary_rl.envs.minihack.levels import LEVELS
from complementary_rl.envs.minihack.suite import SeededLevels, end_of_step, level_seed
from complementary_rl.envs.minihack.view import View
from complementary_rl.envs.protocol import StepResult
from complementary_rl.errors import UserError
from complementary_rl.seeds import derive_seed
from complementary_rl.types import Task

# Imported after .game, which says what to install where they are missing.
import gymnasium  # isort: skip
import minihack  # isort: skip

_PREFIX = "MiniHack-"
_RULES = """\
You are the hero{at} in a level of NetHack. {goal} After each action you are told your hit points (HP), what you see, where notable \
things are relative to you (such as "2 north 1 east"), what you carry when that has changed, and the game's messages. You have {turns} \
actions.

Answer with exactly one action:
- north, north-east, east, south-east, south, south-west, west or north-west: one step that way; a step into a monster attacks it{more}"""
_MESSAGES = 2
_WORDS = "ITEM is the letter or a word of the name of what you carry, such as: zap wand north."


def check_level(level: str) -> None:
    """Raise UserError for an id (without its prefix) that MiniHack does not register, with the nearest, and for frames of levels."""
    known = sorted(id for id in gymnasium.registry if id.startswith(_PREFIX))
    if _PREFIX + level not in known:
        names = ["dark-rooms", *LEVELS, *(id.removeprefix(_PREFIX) for id in known)]
        near = difflib.get_close_matches(level, names, n=1, cutoff=0.3)
        hint = f"did you mean 'minihack/{near[0]}'?" if near else "`crl envs ls` lists some, MiniHack's documentation all"
        raise UserError(f"unknown suite 'minihack/{level}': {hint}")
    if "-Custom-" in level:
        raise UserError(
            f"minihack/{level} is MiniHack's frame for levels of your own; write a Suite for those (docs/environments.md)"
        )


class MiniHackRegistered(SeededLevels):
    """Suite ``minihack/<id without its prefix>``, for every id that MiniHack registers and that can be played offline.

    `train_tasks` and `heldout_tasks` levels are made from seeds that `seed` gives; with `fresh_levels` each episode of a task has a
    level of its own, made from the episode's seed. `view` is "map" or "language" (no map; what is around in words); `crop` shows only
    so many cells of the map around the hero, 0 all of it. At most `max_turns` actions, reward 1 for success. Raises UserError for an
    id that is unknown (with the nearest) or cannot be played here, and for options out of range.
    """

    def __init__(
        self,
        level: str,
        *,
        train_tasks: int = 256,
        heldout_tasks: int = 64,
        max_turns: int = 100,
        fresh_levels: bool = False,
        view: str = "map",
        crop: int = 0,
        seed: int = 0,
    ) -> None:
        self._id = _PREFIX + level
        check_level(level)
        super().__init__(
            f"minihack/{level}",
            train_tasks=train_tasks,
            heldout_tasks=heldout_tasks,
            max_turns=max_turns,
            fresh_levels=fresh_levels,
            view=view,
            crop=crop,
        )
        probe = self.make_game()
        self.commands = Commands(probe.keys)
        goal = probe.goal
        probe.close()
        forms = "".join(f"\n- {form}" for form in self.commands.forms)
        items = f"\n{_WORDS}" if "ITEM" in forms else ""
        at = ", @," if view == "map" else ""
        self.instructions = _RULES.format(at=at, goal=f"{goal}.", turns=max_turns, more=forms + items)
        title = " ".join(level.split("-")[:-1])
        self.draw_tasks(f"{goal} in NetHack's level {title}.", seed)

    def make_env(self) -> "RegisteredEnv":
        return RegisteredEnv(self)

    def make_game(self) -> "RegisteredGame":
        """MiniHack's game of this level. Raises UserError where it cannot be played here."""
        try:
            return RegisteredGame(self._id)
        except (Exception, SystemExit) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UserError(f"{self.name} cannot be played here: {reason.rstrip('.')}; choose another level") from error


class RegisteredGame(Game):
    """The environment that MiniHack makes for `id`, played by keys. `keys` are those its agents may press, `goal` its task in words."""

    def __init__(self, id: str) -> None:
        # MiniHack would else crop four views of the map after every key.
        env: Any = gymnasium.make(id, disable_env_checker=True, fix_moon_phase=True, observation_keys=("message",)).unwrapped
        if hasattr(env, "minigrid_env"):
            env.close()
            raise ValueError("MiniHack makes its levels with MiniGrid, without a seed, so that no level could be played twice.")
        self.keys = tuple(int(key) for key in env.actions)
        self.goal = _goal(env.reward_manager)
        # Not by arguments: some classes overwrite them.
        env.actions = KEY_CODES
        env._allow_all_modes = env._allow_all_yn_questions = True
        env._max_episode_steps = ENDLESS
        env.penalty_step = 0.0
        # NLE would type the quit command, which blanks the observations; the next reset ends the game anyway.
        env._quit_game = lambda observation, done: None
        super().__init__(env)

    def _send(self, key: int) -> Any:
        # Past the steps of subclasses, which replace a key by several of their own choice.
        return minihack.MiniHack.step(self._env, key)


class RegisteredEnv:
    """One episode at a time."""

    def __init__(self, suite: MiniHackRegistered) -> None:
        self._suite = suite
        self._game = suite.make_game()
        self._view = View(self._game, layout=suite.view, crop=suite.crop)
        self._turns = 0

    def reset(self, task: Task, seed: int) -> tuple[str, dict[str, Any]]:
        self._game.begin(
            core=derive_seed("minihack-dice", task.id, seed), level_seed=level_seed(task, seed, fresh=self._suite.fresh_levels)
        )
        self._turns = 0
        return self._view.opening(self._suite.max_turns), {"actions": self._suite.commands.examples(self._game)}

    def step(self, action: str) -> StepResult:
        self._turns += 1
        understood = self._suite.commands.perform(self._game, action)
        return end_of_step(self._game, self._view, self._suite.max_turns - self._turns, understood, "You reached your goal.")

    def close(self) -> None:
        self._game.close()


def _goal(manager: Any) -> str:
    """What MiniHack rewards, in words; without a reward manager it is the staircase down."""
    if manager is None or getattr(manager, "custom_reward_functions", None):
        return "Reach the staircase down"
    told = [_event(event) for event in _events(manager) if event.reward > 0]
    return " or ".join(told)[:1].upper() + " or ".join(told)[1:]


def _events(manager: Any) -> Iterator[Any]:
    for part in getattr(manager, "reward_managers", ()):
        yield from _events(part)
    yield from getattr(manager, "events", ())


def _event(event: Any) -> str:
    match type(event).__name__:
        case "LocActionEvent":
            return f"{event.action.name.lower()} where the {event.loc} is"
        case "LocEvent":
            return f"step onto the {event.loc}"
        case "CoordEvent":
            return f"step onto column {event.coordinates[0]}, row {event.coordinates[1]} of the map"
        case _:
            return "bring about the message " + " or ".join(f'"{message}"' for message in event.messages[:_MESSAGES])
