"""ALFWorld as a suite: the official games where there are files of them, generated households otherwise; 50 turns, reward 1 or 0."""

import functools
import re
from collections.abc import Sequence
from typing import Any

from complementary_rl.envs.alfworld import data as files
from complementary_rl.envs.alfworld.game import NOTHING, Game
from complementary_rl.envs.alfworld.generator import generate
from complementary_rl.envs.alfworld.pddl import House, TaskType
from complementary_rl.envs.alfworld.phrases import KINDS
from complementary_rl.envs.alfworld.player import Player, understand
from complementary_rl.envs.playing import scripted
from complementary_rl.envs.protocol import Policy, StepResult, Suite
from complementary_rl.errors import UserError
from complementary_rl.seeds import derive_seed, rng
from complementary_rl.types import Split, Task

_GENERATED: dict[Split, int] = {"train": 480, "heldout": 120}
_DIALECTS = {"move": "move OBJECT to RECEPTACLE", "put": "put OBJECT in/on RECEPTACLE"}
_RULES = """\
You are in a room of a house and have a task to do there with your own hands. What you see and carry is told by name and number, such \
as "mug 2" or "drawer 1". You can carry one object at a time. Closed receptacles must be opened before you see what is in them. You have \
{turns} actions; one that is not possible is answered by "{nothing}"

Answer with exactly one command:
- go to RECEPTACLE
- open RECEPTACLE, close RECEPTACLE
- take OBJECT from RECEPTACLE
- {put}
- clean OBJECT with SINKBASIN, heat OBJECT with MICROWAVE, cool OBJECT with FRIDGE: while you carry it
- use LAMP
- slice OBJECT with KNIFE
- examine RECEPTACLE or OBJECT, look, inventory, help"""

_MOVE = re.compile(r"move (.+) to (.+)")
_KEPT_HOUSES = 256
_HINT = "\n\nYou can: "


class Alfworld(Suite):
    """Suite ``alfworld``.

    `data` is a folder or file of games (see `data.load`); empty, `seed` generates households. `heldout` names the official split that
    is held out. `train_tasks` and `heldout_tasks` limit the tasks (0: all games there are, or 480 and 120 generated ones); of official
    games they draw a sample by `seed`. `task_types` keeps some of the six, by commas. `dialect` "move" says ``move X to Y`` as alfworld 0.4
    does, "put" ``put X in/on Y`` as older ones; both are always understood. `admissible` tells the possible commands with every
    observation. Raises UserError for options out of range and for files that are no games.
    """

    name = "alfworld"

    def __init__(
        self,
        data: str = "",
        heldout: str = "valid_unseen",
        train_tasks: int = 0,
        heldout_tasks: int = 0,
        task_types: str = "all",
        max_turns: int = 50,
        dialect: str = "move",
        admissible: bool = False,
        seed: int = 0,
    ) -> None:
        if heldout not in files.SPLITS[1:]:
            raise UserError(f"alfworld: heldout is {heldout!r}; it must be {' or '.join(files.SPLITS[1:])}")
        if dialect not in _DIALECTS:
            raise UserError(f"alfworld: dialect is {dialect!r}; it must be {' or '.join(_DIALECTS)}")
        if max_turns < 1 or train_tasks < 0 or heldout_tasks < 0:
            raise UserError(
                f"alfworld: max_turns ({max_turns}) must be at least 1, train_tasks ({train_tasks}) and heldout_tasks "
                f"({heldout_tasks}) at least 0 (for all)"
            )
        types = _task_types(task_types)
        self.max_turns, self.dialect, self.admissible = max_turns, dialect, admissible
        self.instructions = _RULES.format(turns=max_turns, nothing=NOTHING, put=_DIALECTS[dialect])
        counts: dict[Split, int] = {"train": train_tasks, "heldout": heldout_tasks}
        problems = _official(data, heldout, types, counts, seed) if data else _generated(types, counts, seed)
        self._tasks = {split: [self._task(split, one) for one in chosen] for split, chosen in problems.items()}
        self._problems = {
            task.id: one for split, chosen in problems.items() for task, one in zip(self._tasks[split], chosen, strict=True)
        }
        # A group plays the same game many times.
        self._house = functools.lru_cache(_KEPT_HOUSES)(lambda identity: self._problems[identity].house())

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._tasks[split]

    def make_env(self) -> "AlfworldEnv":
        return AlfworldEnv(self)

    def expert(self, task: Task, seed: int) -> Policy | None:
        """The scripted player, which knows no more than the game says; None for a task that is not said in ALFWorld's own words."""
        try:
            understand(self.wording(task))
        except ValueError:
            return None
        player = scripted(Player().play)
        return lambda observation: player(observation.partition(_HINT)[0])

    def house(self, task: Task) -> House:
        """The room of a task. Raises UserError if the task is not of this suite or its file is broken."""
        if task.id not in self._problems:
            raise UserError(f"alfworld: there is no game {task.id!r} in this suite; was it made with other options?")
        return self._house(task.id)

    def wording(self, task: Task) -> str:
        """The task in ALFWorld's words, without a full stop."""
        return self._problems[task.id].wording

    def _task(self, split: Split, one: files.Problem) -> Task:
        identity = f"{self.name}/{one.split}/{one.id}"
        description = f"{KINDS[one.task]}: {one.wording}."
        # One shelf for all: what is learnt of heating a potato helps to heat an apple, and where things lie helps every task.
        return Task(identity, self.name, description, derive_seed(identity), split, scope=self.name)


class AlfworldEnv:
    """One game at a time."""

    def __init__(self, suite: Alfworld) -> None:
        self._suite = suite
        self._game: Game | None = None
        self._turns = 0

    def reset(self, task: Task, seed: int) -> tuple[str, dict[str, Any]]:
        # Nothing is left to chance: the task is the whole game.
        self._game = Game(self._suite.house(task))
        self._turns = 0
        possible = self.admissible()
        opening = f"{self._game.opening()}\n\nYour task is to: {self._suite.wording(task)}."
        return self._tell(opening, possible), {"actions": possible}

    def step(self, action: str) -> StepResult:
        assert self._game is not None, "step before reset"
        self._turns += 1
        feedback = self._game.do(_normal(action))
        won = self._game.won
        possible = self.admissible()
        info = {"success": won, "invalid": feedback == NOTHING, "actions": possible}
        return self._tell(feedback, possible), float(won), won, not won and self._turns >= self._suite.max_turns, info

    def admissible(self) -> list[str]:
        """What can be done now, sorted, in the suite's dialect."""
        assert self._game is not None, "nothing is being played"
        commands = self._game.admissible()
        return sorted(_MOVE.sub(r"put \1 in/on \2", command) for command in commands) if self._suite.dialect == "put" else commands

    def close(self) -> None:
        self._game = None

    def _tell(self, text: str, possible: Sequence[str]) -> str:
        if self._suite.dialect == "put":
            text = re.sub(r"^You move the (.+) to the (.+)\.$", r"You put the \1 in/on the \2.", text)
            text = text.replace("  move (object) to (receptacle):  ", "  put (object) in/on (receptacle):  ")
        return f"{text}{_HINT}{', '.join(possible)}." if self._suite.admissible else text


def _normal(action: str) -> str:
    """One spelling of a command: lower case, single spaces, no quotes or full stop around it."""
    return " ".join(action.lower().split()).strip(" .!`'\"*>")


def _task_types(names: str) -> tuple[TaskType, ...]:
    wanted = [name.strip() for name in names.split(",")]
    unknown = [name for name in wanted if name not in ("all", *TaskType)]
    if unknown:
        raise UserError(f"alfworld: there is no task type {unknown[0]!r}; there are all, {', '.join(TaskType)}")
    return tuple(TaskType) if "all" in wanted else tuple(TaskType(name) for name in dict.fromkeys(wanted))


def _generated(types: Sequence[TaskType], counts: dict[Split, int], seed: int) -> dict[Split, list[files.Problem]]:
    return {
        split: [_generate(seed, split, index, types[index % len(types)]) for index in range(count or _GENERATED[split])]
        for split, count in counts.items()
    }


def _generate(seed: int, split: Split, index: int, task: TaskType) -> files.Problem:
    identity, wording, text = generate(seed, split, index, task)
    return files.problem(identity, split, wording, text, "a generated game")


def _official(
    data: str, heldout: str, types: Sequence[TaskType], counts: dict[Split, int], seed: int
) -> dict[Split, list[files.Problem]]:
    games = [one for one in files.load(data) if one.task in types]
    by_split = {split: [one for one in games if one.split == split] for split in files.SPLITS}
    there = ", ".join(f"{split} ({len(found)})" for split, found in by_split.items() if found) or "none"
    if not by_split["train"]:
        raise UserError(f"alfworld: {data} has no games of the split train and task_types to train on; it has {there}")
    others = [split for split in files.SPLITS[1:] if by_split[split]]
    if others and heldout not in others:
        raise UserError(f"alfworld: {data} has no {heldout} games; it has {there}: set heldout = {others[0]!r}")
    return {
        split: _sample(by_split["train" if split == "train" else heldout], count, f"{split} of {data}", seed)
        for split, count in counts.items()
    }


def _sample(games: list[files.Problem], count: int, what: str, seed: int) -> list[files.Problem]:
    if count > len(games):
        raise UserError(f"alfworld: {what} has {len(games)} games, not {count}; ask for fewer, or for 0 to have all")
    if not count:
        return games
    chosen = rng("alfworld-sample", seed, what.partition(" ")[0]).permutation(len(games))[:count]
    return [games[index] for index in sorted(chosen)]
