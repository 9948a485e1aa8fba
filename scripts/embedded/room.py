"""The dark room in pure Python: what `minihack/dark-rooms` plays on NetHack, with the same texts and 100 times faster.

A test holds the two to the same observations, move by move.
"""

from random import Random

from complementary_rl.envs.minihack.compass import STEPS, towards
from complementary_rl.envs.minihack.room_names import ADJECTIVES, NOUNS

SIZE = 15
REGIONS = ("north-west", "north", "north-east", "west", "centre", "east", "south-west", "south", "south-east")
Cell = tuple[int, int]

_SIDE = SIZE // 3


def region_of(cell: Cell) -> str:
    """Which of the nine regions a cell (column, row; 1 … SIZE) lies in."""
    x, y = cell
    return REGIONS[(y - 1) // _SIDE * 3 + (x - 1) // _SIDE]


def middle_of(region: str) -> Cell:
    """The cell in the middle of a region."""
    row, column = divmod(REGIONS.index(region), 3)
    return column * _SIDE + _SIDE // 2 + 1, row * _SIDE + _SIDE // 2 + 1


def distance(a: Cell, b: Cell) -> int:
    """King-moves between two cells."""
    return max(abs(a[0] - b[0]), abs(a[1] - b[1]))


def draw_cell(random: Random) -> Cell:
    """A cell of the room, uniformly."""
    return random.randint(1, SIZE), random.randint(1, SIZE)


def draw_description(random: Random) -> str:
    """The task's text with a random name: the lists are the suite's, the exits are not, so a name says nothing."""
    return f"Find the exit of the {random.choice(ADJECTIVES)} {random.choice(NOUNS)}."


class Room:
    """One episode: a hero at `position`, an exit that shows when the hero stands next to it and is remembered."""

    def __init__(self, exit_cell: Cell, position: Cell) -> None:
        self.exit = exit_cell
        self.position = position
        self.seen = False
        self.out = False
        self._look()

    @classmethod
    def draw(cls, random: Random, exit_cell: Cell | None = None) -> "Room":
        """A room with a random exit, or the given one, and the hero anywhere out of its sight."""
        exit_cell = exit_cell or draw_cell(random)
        position = draw_cell(random)
        while distance(position, exit_cell) <= 1:
            position = draw_cell(random)
        return cls(exit_cell, position)

    @property
    def way(self) -> str | None:
        """The compass word towards the exit, once it has been seen."""
        if not self.seen or self.out:
            return None
        return towards(self.exit[0] - self.position[0], self.exit[1] - self.position[1])

    def observation(self) -> str:
        place = f"at {self.position[0]} {self.position[1]}"
        if self.out:
            return f"{place}, out"
        return f"{place}, exit {self.way}" if self.seen else place

    def step(self, action: str) -> str:
        """Take an action (any text) and return the observation."""
        move = STEPS.get(action.strip().lower())
        if move is None:
            return f"unknown action; {self.observation()}"
        self.position = neighbour(self.position, move) or self.position
        self.out = self.position == self.exit
        self._look()
        return self.observation()

    def _look(self) -> None:
        self.seen = self.seen or distance(self.position, self.exit) <= 1


def neighbour(cell: Cell, move: tuple[int, int]) -> Cell | None:
    """The cell one move away, or None where the wall is."""
    x, y = cell[0] + move[0], cell[1] + move[1]
    return (x, y) if 1 <= x <= SIZE and 1 <= y <= SIZE else None
