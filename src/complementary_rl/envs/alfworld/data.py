"""Games from files: the official ALFWorld folders, single games, and JSON lines (also ``.jsonl.xz``) with one game each.

Official: ``…/json_2.1.1/<split>/<task>/<trial>/game.tw-pddl``, or, where there are none of these, ``initial_state.pddl`` beside
``traj_data.json``. Lines: ``{"split", "id", "task", "pddl_problem"}``; other keys are ignored. Splits: train, valid_seen, valid_unseen.
"""

import json
import lzma
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from complementary_rl.envs.alfworld.pddl import House, TaskType, read_goal, read_problem, split_problem
from complementary_rl.envs.alfworld.phrases import PHRASES
from complementary_rl.errors import UserError
from complementary_rl.seeds import rng

SPLITS = ("train", "valid_seen", "valid_unseen")

_TASK = re.compile(r'Your task is to: ((?:[^"\\]|\\.)*?)\.?"')
_KEYS = ("split", "id", "task", "pddl_problem")
_GET_DATA = "pip install alfworld && alfworld-download gets them, into $ALFWORLD_DATA/json_2.1.1"


@dataclass(frozen=True, slots=True)
class Problem:
    """A game before it is played. `wording` is the task without its full stop; the PDDL is kept packed, being 45 KB of text."""

    id: str
    split: str
    wording: str
    task: TaskType
    source: str
    packed: bytes

    def house(self) -> House:
        """Parse it (2 ms). Raises UserError with the file's name when its facts are broken."""
        with _Blame(self.source):
            return read_problem(zlib.decompress(self.packed).decode())


def problem(identity: str, split: str, wording: str, text: str, source: str) -> Problem:
    """A problem whose goal has been read and whose sections are there. Raises ValueError that says what is wrong."""
    _, goal = split_problem(text)
    return Problem(identity, split, wording, read_goal(goal).task, source, zlib.compress(text.encode(), 1))


def load(data: str) -> list[Problem]:
    """All games of a folder or file, ordered by split and id. Raises UserError that names the file and what is wrong with it."""
    path = Path(data).expanduser()
    if not path.exists():
        raise UserError(f"alfworld: there is no {path}; give a folder or file with ALFWorld games in env.options data. {_GET_DATA}")
    if path.is_dir():
        found = _folder(path)
    elif path.name.endswith((".jsonl", ".jsonl.xz")):
        found = _lines(path)
    elif path.suffix == ".tw-pddl":
        found = filter(None, [_game_file(path, path.parent)])
    else:
        raise UserError(f"alfworld: {path} is neither a folder, nor a .jsonl, .jsonl.xz or .tw-pddl file")
    problems = sorted(found, key=lambda one: (SPLITS.index(one.split), one.id))
    if not problems:
        raise UserError(f"alfworld: {path} holds no game that can be played and won. {_GET_DATA}")
    return problems


def _folder(path: Path) -> Iterator[Problem]:
    games = sorted(path.rglob("game.tw-pddl"))
    # Official folders hold more initial states than games: the rest cannot be won.
    found: Iterable[Problem | None] = (
        (_game_file(game, path) for game in games)
        if games
        else (_initial_state(state, path) for state in sorted(path.rglob("initial_state.pddl")))
    )
    if not games and not any(path.rglob("initial_state.pddl")):
        alfred = any(path.rglob("traj_data.json"))
        raise UserError(
            f"alfworld: {path} holds {'only ALFRED trajectories (traj_data.json)' if alfred else 'no ALFWorld games'}; "
            f"there must be game.tw-pddl files, or initial_state.pddl beside traj_data.json. {_GET_DATA}"
        )
    return filter(None, found)


def _game_file(path: Path, root: Path) -> Problem | None:
    """The game of a ``game.tw-pddl`` file, or None where alfworld leaves it out: unsolvable ones, sliced and movable things."""
    with _Blame(str(path)):
        game = _object(path.read_text())
        if _left_out(path) or not game.get("solvable", True):
            return None
        wording = _TASK.search(game["grammar"])
        if not wording:
            raise ValueError("its grammar does not tell the task: games of this version are not supported (2.1.1 and 2.1.2 are)")
        return problem(_identity(path), _split(path, root), wording[1], game["pddl_problem"], str(path))


def _initial_state(path: Path, root: Path) -> Problem | None:
    if _left_out(path):
        return None
    trajectory = path.with_name("traj_data.json")
    with _Blame(str(trajectory)):
        described = _object(trajectory.read_text())
        task, parameters = described["task_type"], described["pddl_params"]
        if task not in tuple(TaskType):
            return None
        target = parameters["toggle_target" if task == TaskType.LIGHT else "parent_target"]
        phrases = PHRASES[TaskType(task)]
        phrase = phrases[rng("alfworld-wording", _identity(path)).integers(len(phrases))]
        wording = phrase.format(thing=parameters["object_target"].lower(), target=target.lower())
    with _Blame(str(path)):
        return problem(_identity(path), _split(path, root), wording, path.read_text(), str(path))


def _lines(path: Path) -> Iterator[Problem]:
    number = 0
    with _Blame(str(path)), lzma.open(path, "rt") if path.suffix == ".xz" else path.open() as lines:
        for number, line in enumerate(lines, start=1):
            with _Blame(f"{path}, line {number}"):
                row = _object(line)
                split, identity, wording, text = (str(row[key]) for key in _KEYS)
                if split not in SPLITS:
                    raise ValueError(f"its split is {split!r}; there are {', '.join(SPLITS)}")
                yield problem(identity, split, wording, text, f"{path}, line {number}")


class _Blame:
    """Turns what goes wrong with a file into a UserError that names it."""

    def __init__(self, source: str) -> None:
        self._source = source

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, UserError) or not isinstance(
            error, OSError | ValueError | KeyError | TypeError | EOFError | lzma.LZMAError
        ):
            return
        what = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise UserError(f"alfworld: {self._source} is not an ALFWorld game: {what}. {_GET_DATA}") from error


def _object(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise TypeError("it is not a JSON object")
    return found


def _left_out(path: Path) -> bool:
    return "movable" in _identity(path) or "Sliced" in _identity(path)


def _identity(path: Path) -> str:
    return "/".join(path.resolve().parts[-3:-1])


def _split(path: Path, root: Path) -> str:
    # The root's own name counts too: one may be given `…/valid_seen`.
    parts = (*root.resolve().parts, *path.relative_to(root).parts)
    return next((part for part in reversed(parts) if part in SPLITS), "train")
