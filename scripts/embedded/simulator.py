"""A dark room in plain Python, with the text of `minihack/dark-rooms`, and players of mixed skill to imitate."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

SIZE = 15
REGIONS = ("north-west", "north", "north-east", "west", "centre", "east", "south-west", "south", "south-east")
MOVES = {
    "north": (0, -1),
    "north-east": (1, -1),
    "east": (1, 0),
    "south-east": (1, 1),
    "south": (0, 1),
    "south-west": (-1, 1),
    "west": (-1, 0),
    "north-west": (-1, -1),
}
NAMES = {move: name for name, move in MOVES.items()}
_AROUND = ((0, -1), (1, -1), (1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0), (-1, -1))
"""The cells around one, clockwise."""


def region(x: int, y: int) -> str:
    return REGIONS[(y - 1) // 5 * 3 + (x - 1) // 5]


def cells(name: str) -> list[tuple[int, int]]:
    index = REGIONS.index(name)
    left, top = index % 3 * 5, index // 3 * 5
    return [(left + 1 + i, top + 1 + j) for i in range(5) for j in range(5)]


@dataclass
class Room:
    """One episode. `turns` holds (observation, action); the exit is a random cell, so that no name means anything."""

    exit: tuple[int, int]
    place: tuple[int, int]
    seen: bool = False
    won: bool = False
    turns: list[tuple[str, str]] = field(default_factory=list)
    visited: Counter[str] = field(default_factory=Counter)

    @classmethod
    def draw(cls, rng: np.random.Generator, exit_: tuple[int, int] | None = None) -> "Room":
        exit_ = exit_ or (int(rng.integers(1, SIZE + 1)), int(rng.integers(1, SIZE + 1)))
        while True:
            place = (int(rng.integers(1, SIZE + 1)), int(rng.integers(1, SIZE + 1)))
            if max(abs(place[0] - exit_[0]), abs(place[1] - exit_[1])) > 1:
                return cls(exit_, place)

    @property
    def observation(self) -> str:
        text = f"at {self.place[0]} {self.place[1]}"
        if self.won:
            return f"{text}, out"
        return f"{text}, exit {step_towards(self.place, self.exit)}" if self.seen else text

    def act(self, action: str) -> None:
        self.turns.append((self.observation, action))
        x, y = self.place[0] + MOVES[action][0], self.place[1] + MOVES[action][1]
        if 1 <= x <= SIZE and 1 <= y <= SIZE:
            self.place = (x, y)
        self.visited[region(*self.place)] += 1
        self.won = self.place == self.exit
        self.seen = self.seen or max(abs(self.place[0] - self.exit[0]), abs(self.place[1] - self.exit[1])) <= 1


def step_towards(place: tuple[int, int], target: tuple[int, int]) -> str:
    return NAMES[int(np.sign(target[0] - place[0])), int(np.sign(target[1] - place[1]))]


def sweep(place: tuple[int, int], name: str) -> str:
    """Go near the middle of a region, then round it: from there all of the region comes in sight. Where one is says what to do."""
    middle = cells(name)[12]
    way = (place[0] - middle[0], place[1] - middle[1])
    if way == (0, 0):
        return "north"
    if max(map(abs, way)) > 1:
        return step_towards(place, middle)
    following = _AROUND[(_AROUND.index(way) + 1) % 8]
    return NAMES[following[0] - way[0], following[1] - way[1]]


def play(room: Room, rng: np.random.Generator, wanted: str | None, avoided: set[str], turns: int = 16, slips: float = 0.1) -> None:
    """Search `wanted` (or anywhere but `avoided`); go to the exit once it is seen. `slips` is the share of random moves."""
    heading = list(MOVES)[rng.integers(8)]
    for _ in range(turns):
        if room.won:
            return
        if room.seen:
            room.act(step_towards(room.place, room.exit))
            continue
        if wanted is not None:
            action = sweep(room.place, wanted)
        else:
            x, y = room.place[0] + 2 * MOVES[heading][0], room.place[1] + 2 * MOVES[heading][1]
            blocked = not (1 <= x <= SIZE and 1 <= y <= SIZE) or region(x, y) in avoided
            if blocked or rng.random() < 0.15:
                heading = list(MOVES)[rng.integers(8)]
            action = heading
        if rng.random() < slips:
            action = list(MOVES)[rng.integers(8)]
        room.act(action)
