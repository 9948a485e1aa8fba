"""FrozenLake as a suite: Gymnasium's own environment on random maps that can be crossed, told in words and letters."""

import functools
from collections.abc import Sequence
from typing import Any

from complementary_rl.envs.frozen_lake.planner import best_actions
from complementary_rl.envs.options import require_at_least
from complementary_rl.envs.places import Place, places
from complementary_rl.envs.protocol import Policy, StepResult, Suite
from complementary_rl.envs.wording import bare
from complementary_rl.errors import UserError
from complementary_rl.seeds import derive_seed
from complementary_rl.types import Split, Task

try:
    from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv as Lake
    from gymnasium.envs.toy_text.frozen_lake import generate_random_map
except ImportError as error:
    raise UserError(
        f"frozen-lake needs a package that is not installed ({error}); run: pip install 'complementary-rl[gymnasium]'"
    ) from error

ACTIONS = ("left", "down", "right", "up")
"""In Gymnasium's order."""

Map = tuple[str, ...]

_SIZES = range(3, 11)
_HELDOUT_SHARE = 5
_TRIES = 40
_RULES = """\
You cross a frozen lake from the start in the top left corner to the goal in the bottom right corner, without falling into a hole.{sight} \
You have {turns} actions.{slippery}

Answer with one word: left, down, right or up."""
_MAP = " Signs: S start, F ice, H hole, G goal, @ you; row 1 is the top, column 1 the left."
_NO_MAP = " You are told where you are, not where the holes are; row 1 is the top, column 1 the left."
_SLIPPERY = (
    " The ice is slippery: one time in three you go where you want to, else to one side of it, left or right of your heading."
)


class FrozenLake(Suite):
    """Suite ``frozen-lake``.

    `levels` train and `heldout_levels` held-out random maps of `size` × `size` cells, no two alike, each with a way to the goal and at
    least one hole; a cell is ice with probability `p`. With `is_slippery` Gymnasium's ice. `show_map` draws the map; without it only the
    position is told, as in Gymnasium. `scope` "shared" files experience of all maps together; with "level" each lake has a name and a
    shelf of the bank of its own. At most `max_turns` actions; `seed` draws the maps. Raises UserError for options out of range.
    """

    name = "frozen-lake"
    needs = "gymnasium (MIT)"

    def __init__(
        self,
        size: int = 4,
        is_slippery: bool = False,
        p: float = 0.8,
        levels: int = 64,
        heldout_levels: int = 32,
        max_turns: int = 30,
        show_map: bool = True,
        scope: str = "shared",
        seed: int = 0,
    ) -> None:
        if size not in _SIZES or not 0 < p < 1:
            raise UserError(f"frozen-lake: size must be 3 to 10 and p between 0 and 1, not {size} and {p}")
        require_at_least(self.name, 1, max_turns=max_turns)
        self.max_turns = max_turns
        self.is_slippery = is_slippery
        self.show_map = show_map
        self.instructions = _RULES.format(
            turns=max_turns, sight=_MAP if show_map else _NO_MAP, slippery=_SLIPPERY if is_slippery else ""
        )
        self._size = size
        self._maps: dict[str, Map] = {}
        self._tasks: dict[Split, list[Task]] = {}
        for split, of_split in places(self.name, scope, levels, heldout_levels, seed).items():
            self._tasks[split] = [self._task(split, index, seed, place) for index, place in enumerate(of_split)]
            maps = _distinct_maps(size, p, split, len(of_split), seed)
            self._maps.update(zip((place.id for place in of_split), maps, strict=True))

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._tasks[split]

    def make_env(self) -> "FrozenLakeEnv":
        return FrozenLakeEnv(self)

    def map(self, task: Task) -> Map:
        """The rows of a task's map in Gymnasium's letters. Raises UserError if the task is not of this suite."""
        if task.id not in self._maps:
            raise UserError(f"frozen-lake: there is no task {task.id!r} in this suite; was it made with other options?")
        return self._maps[task.id]

    def expert(self, task: Task, seed: int) -> Policy:
        best = _plan(self.map(task), self.is_slippery, self.max_turns)

        def policy(observation: str) -> str:
            _, row, _, column, left, *_ = observation.splitlines()[-1].replace(",", "").split()
            return ACTIONS[best[int(left) - 1, (int(row) - 1) * self._size + int(column) - 1]]

        return policy

    def _task(self, split: Split, index: int, seed: int, place: Place) -> Task:
        lake = f"{'slippery ' if self.is_slippery else ''}frozen lake{f' by the {place.title}' if place.title else ''}"
        hazards = f"{'' if self.show_map else 'hidden '}holes{', and ice on which you slip sideways' if self.is_slippery else ''}"
        description = f"Cross the {lake} of {self._size}x{self._size} cells. Hazards: {hazards}."
        level_seed = derive_seed("frozen-lake", split, seed, index)
        return Task(place.id, self.name, description, level_seed, split, scope=place.scope)


class FrozenLakeEnv:
    """One episode at a time."""

    def __init__(self, suite: FrozenLake) -> None:
        self._suite = suite

    def reset(self, task: Task, seed: int) -> tuple[str, dict[str, Any]]:
        self._map = self._suite.map(task)
        self._lake: Any = Lake(desc=list(self._map), is_slippery=self._suite.is_slippery)
        self._state, _ = self._lake.reset(seed=derive_seed("frozen-lake", task.id, seed))
        self._turns = 0
        return self._view(), {"actions": ACTIONS}

    def step(self, action: str) -> StepResult:
        self._turns += 1
        word = bare(action)
        if word in ACTIONS:
            self._state, reward, terminated, _, _ = self._lake.step(ACTIONS.index(word))
            won = reward > 0
            note = "" if not terminated else "You reached the goal.\n" if won else "You fell into a hole.\n"
        else:
            note, terminated, won = "That is no action here; nothing moved.\n", False, False
        truncated = not terminated and self._turns >= self._suite.max_turns
        return note + self._view(), float(won), bool(terminated), truncated, {"success": won}

    def close(self) -> None:
        pass

    def _view(self) -> str:
        row, column = divmod(self._state, len(self._map))
        where = f"row {row + 1}, column {column + 1}, {self._suite.max_turns - self._turns} actions left"
        if not self._suite.show_map:
            return where
        here = self._map[row]
        return "\n".join([*self._map[:row], f"{here[:column]}@{here[column + 1 :]}", *self._map[row + 1 :], where])


def _distinct_maps(size: int, p: float, split: Split, count: int, seed: int) -> list[Map]:
    maps: dict[Map, None] = {}
    for attempt in range(count * _TRIES):
        if len(maps) == count:
            break
        drawn = tuple(generate_random_map(size, p, derive_seed("frozen-lake", size, split, seed, attempt)))
        if "H" in "".join(drawn) and _split_of(drawn) == split:
            maps[drawn] = None
    if len(maps) < count:
        raise UserError(
            f"frozen-lake: {count} different {split} maps of size {size} with p {p} were not found; ask for fewer, or a larger size"
        )
    return list(maps)


def _split_of(drawn: Map) -> Split:
    # A map and its mirror image along the diagonal are one lake: a held-out map is no training map in disguise.
    mirrored = tuple("".join(column) for column in zip(*drawn, strict=True))
    return "heldout" if derive_seed("frozen-lake-split", *min(drawn, mirrored)) % _HELDOUT_SHARE == 0 else "train"


@functools.lru_cache(maxsize=1024)
def _plan(drawn: Map, is_slippery: bool, turns: int) -> Any:
    return best_actions(Lake(desc=list(drawn), is_slippery=is_slippery).P, turns)
