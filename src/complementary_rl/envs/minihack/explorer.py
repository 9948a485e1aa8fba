"""A scripted hero, for baselines and to see that levels can be won: walks to the staircase, or to the nearest place it has not seen.

It reads what an actor reads with the view "map" and no crop, and knows nothing else. It plans as if what it has not seen were floor. A key
is picked up, and a locked door opened with it.
"""

import re
from collections import deque
from collections.abc import Callable, Generator, Iterator

from complementary_rl.envs.minihack.compass import STEPS

Cell = tuple[int, int]

_BLOCKED = ("wall", "stone", "solid rock", "boulder", "water", "closed door", "iron bars", "tree", "molten lava")
_UNSEEN, _HERO = " ", "@"
_KEY_CARRIED = re.compile(r"^You carry: .*\bkey\b", re.MULTILINE)


def explore(opening: str, size: tuple[int, int]) -> Generator[str, str, None]:
    """Yields actions on a map of `size` (width, height), is sent the observations that follow."""
    chart, observation = _Chart(size), opening
    while True:
        chart.read(observation)
        observation = yield chart.action()


class _Chart:
    """What the hero has seen. Cells are (column, row) of the map, whose origin stays where it is."""

    def __init__(self, size: tuple[int, int]) -> None:
        self._size = size
        self._here: Cell = (0, 0)
        # By what they were called when last seen; those next to which the hero has stood; steps that led nowhere, and the last step.
        self._cells: dict[Cell, str] = {}
        self._looked: set[Cell] = set()
        self._refused: set[tuple[Cell, Cell]] = set()
        self._tried: tuple[Cell, Cell] | None = None
        self._keys: set[Cell] = set()
        self._doors: set[Cell] = set()
        self._opened: set[Cell] = set()
        self._has_key = False

    def read(self, observation: str) -> None:
        """Take in an observation."""
        before, names = self._here, _legend(observation)
        self._has_key = self._has_key or _KEY_CARRIED.search(observation) is not None
        creatures = set()
        for y, row in enumerate(_map(observation)):
            for x, character in enumerate(row):
                if character == _HERO:
                    self._here = (x, y)
                elif character != _UNSEEN:
                    self._note((x, y), names.get(character, ""))
                    creatures |= {(x, y)} if character.isalpha() else set()
        # A step into a creature is a blow, and may be worth another.
        if self._tried is not None and self._here == before and self._tried[1] not in creatures:
            self._refused.add(self._tried)
        self._looked |= {*_around(self._here), self._here}

    def _note(self, cell: Cell, what: str) -> None:
        self._cells[cell] = what
        if re.search(r"\bkey\b", what):
            self._keys.add(cell)
        if what == "closed door":
            self._doors.add(cell)

    def action(self) -> str:
        """What to do next."""
        if self._here in self._keys and not self._has_key:
            self._keys.discard(self._here)
            return "pick up"
        for word in ("north", "east", "south", "west"):
            cell = (self._here[0] + STEPS[word][0], self._here[1] + STEPS[word][1])
            if self._has_key and cell in self._doors - self._opened:
                self._opened.add(cell)
                return f"apply key {word}"
        for wanted in self._goals():
            if (step := self._step_towards(wanted)) is not None:
                self._tried = self._here, step
                return next(word for word, way in STEPS.items() if way == (step[0] - self._here[0], step[1] - self._here[1]))
        self._tried = None
        return "search"

    def _goals(self) -> Iterator[Callable[[Cell], bool]]:
        yield lambda cell: "staircase down" in self._cells.get(cell, "")
        if not self._has_key:
            yield lambda cell: cell in self._keys
        else:
            yield lambda cell: any(abs(cell[0] - x) + abs(cell[1] - y) == 1 for x, y in self._doors - self._opened)
        yield lambda cell: cell not in self._cells and cell not in self._looked

    def _step_towards(self, wanted: Callable[[Cell], bool]) -> Cell | None:
        """The first step of a shortest way to the nearest cell that is `wanted`."""
        first: dict[Cell, Cell] = {self._here: self._here}
        queue = deque([self._here])
        while queue:
            cell = queue.popleft()
            for following in _around(cell):
                if following in first or not self._passable(cell, following):
                    continue
                first[following] = following if cell == self._here else first[cell]
                if wanted(following):
                    return first[following]
                queue.append(following)
        return None

    def _passable(self, cell: Cell, following: Cell) -> bool:
        (x, y), diagonal = following, cell[0] != following[0] and cell[1] != following[1]
        if not (0 <= x < self._size[0] and 0 <= y < self._size[1]) or (cell, following) in self._refused:
            return False
        if following in self._opened or cell in self._opened:
            return not diagonal
        return not any(self._cells.get(following, "").startswith(name) for name in _BLOCKED)


def _around(cell: Cell) -> list[Cell]:
    # Straight ways first: they are as short, and doors are passed straight.
    ways = sorted(STEPS.values(), key=lambda way: abs(way[0]) + abs(way[1]))
    return [(cell[0] + dx, cell[1] + dy) for dx, dy in ways]


def _map(observation: str) -> list[str]:
    return observation.partition("Map (north is up):\n")[2].partition("\nLegend: ")[0].split("\n")


def _legend(observation: str) -> dict[str, str]:
    """What each character of the map stands for, several meanings joined by "or"."""
    line = observation.partition("\nLegend: ")[2].partition("\n")[0]
    return {entry[0]: entry[2:] for entry in re.split(r"; (?=\S )", line)}
