"""The rules of Sokoban. A cell is a number, row × width + column; the border of a room is wall, so neighbours need no bounds check."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

Boxes = frozenset[int]

WALL, FLOOR, TARGET, BOX, BOX_ON_TARGET, PLAYER, PLAYER_ON_TARGET = "#_.$*@+"


@dataclass(frozen=True, slots=True)
class Room:
    """A level as it begins: `floor` are the cells that are not wall, targets included. Drawn in XSB's signs, with _ for floor."""

    width: int
    floor: frozenset[int]
    targets: frozenset[int]
    boxes: Boxes
    player: int

    @classmethod
    def parse(cls, rows: Iterable[str]) -> Self:
        """The room that `draw` gave as `rows`; all have one length."""
        lines = list(rows)
        cells = "".join(lines)
        at = {sign: frozenset(cell for cell, found in enumerate(cells) if found in sign) for sign in ("_.$*@+", ".*+", "$*", "@+")}
        (player,) = at["@+"]
        return cls(len(lines[0]), at["_.$*@+"], at[".*+"], at["$*"], player)

    def draw(self, player: int, boxes: Boxes) -> list[str]:
        """The rows of the picture with player and boxes where they are now."""
        cells = [FLOOR if cell in self.floor else WALL for cell in range(self.width * self.width)]
        for cell in self.targets:
            cells[cell] = TARGET
        for cell in boxes:
            cells[cell] = BOX_ON_TARGET if cell in self.targets else BOX
        cells[player] = PLAYER_ON_TARGET if player in self.targets else PLAYER
        return ["".join(cells[start : start + self.width]) for start in range(0, len(cells), self.width)]

    def directions(self) -> dict[str, int]:
        """Action → what a step that way adds to the number of a cell."""
        return {"up": -self.width, "down": self.width, "left": -1, "right": 1}

    def move(self, player: int, boxes: Boxes, step: int) -> tuple[int, Boxes] | None:
        """Player and boxes after a step, which pushes the box in its way; None when a wall or a second box stops it."""
        to = player + step
        if to in boxes:
            beyond = to + step
            if beyond not in self.floor or beyond in boxes:
                return None
            return to, (boxes - {to}) | {beyond}
        return (to, boxes) if to in self.floor else None


def symmetric(rows: list[str]) -> list[list[str]]:
    """The eight pictures that turning and mirroring a square picture gives."""
    turned = [rows]
    for _ in range(3):
        turned.append(["".join(column) for column in zip(*turned[-1][::-1], strict=True)])
    return [*turned, *([row[::-1] for row in picture] for picture in turned)]
