"""A NetHack screen as text: what the hero knows, cropped to the level, with a legend and where notable things are."""

import re

import numpy as np
from nle import nethack
from numpy.typing import NDArray

from complementary_rl.envs.minihack.compass import STEPS
from complementary_rl.envs.minihack.game import Game
from complementary_rl.errors import UserError

OBSERVE = ("chars", "screen_descriptions", "inv_strs", "inv_letters")
"""The NLE observations a view reads."""

_PLAIN = frozenset({"", "floor of a room", "dark part of a room", "wall", "stone", "solid rock", "dark part of a maze"})
# MiniHack's game data has no rumors, which the artifact key likes to whisper.
_NOISE = re.compile(r"Can't open 'rumors' file\.|Program in disorder!|The key[^.]* whispers:|\"NetHack rumors file [^\"]*\"")
_BLANK = ord(" ")
# The lines of the screen that hold the map; messages stand above, the status below.
_MAP, _WIDTH = slice(1, 22), 79
# Of terrain such as water only the nearest cell is told; things and creatures are told one by one, up to this many a kind.
_MOST_OF_A_KIND = 5


LAYOUTS = ("map", "language")
_CROPS = range(3, 22)


def check_look(layout: str, crop: int) -> None:
    """Raise UserError for a layout or crop that `View` does not have."""
    if layout not in LAYOUTS:
        raise UserError(f"view must be one of {', '.join(LAYOUTS)}, not {layout!r}")
    if crop and (crop not in _CROPS or crop % 2 == 0):
        raise UserError(f"crop must be 0 or an odd number from {_CROPS[0]} to {_CROPS[-1]}, not {crop}")


class View:
    """Renders one game.

    `area` is the level's (left, top, width, height) on the screen; without it, what has been seen is shown, however large. `layout`
    "language" tells the cells around the hero in words in place of map and legend. `crop` is the side of the square around the hero
    that is shown, odd, 0 for all. Fog of war is NetHack's: cells that were never seen are blank, and what was seen is shown as
    remembered.
    """

    def __init__(self, game: Game, area: tuple[int, int, int, int] | None = None, *, layout: str = "map", crop: int = 0) -> None:
        self._game = game
        self._area = area
        self._layout = layout
        self._crop = crop
        self._inventory: list[tuple[str, str]] = []

    def opening(self, actions_left: int) -> str:
        """The first observation of an episode."""
        self._inventory = []
        return self.render(actions_left)

    def render(self, actions_left: int) -> str:
        """The observation now; takes the messages heard since the last one. The inventory is told when it has changed."""
        hit_points, at_most = self._game.health
        status = f"HP {hit_points}/{at_most}, turn {self._game.turn}, {actions_left} actions left"
        lines = [status, *self._map(), *self._carried()]
        if message := self.messages():
            lines.append(f"Message: {message}")
        return "\n".join(lines)

    def messages(self) -> str:
        """What the game has said since the last time, in one line."""
        heard, self._game.heard = self._game.heard, []
        return " ".join(_NOISE.sub("", " ".join(heard)).split())

    def _map(self) -> list[str]:
        screen = self._game.array("chars")
        rows, columns = self._shown(screen)
        glyphs, described = self._game.array("glyphs"), self._game.descriptions(rows, columns)
        here_x, here_y = self._game.position
        legend: dict[str, list[str]] = {"@": ["you"]}
        known: set[tuple[str, str]] = set()
        found: dict[str, list[tuple[int, int, bool]]] = {}
        drawn = [bytes(line).decode("latin-1") for line in screen[rows, columns]]
        for y, (line, names_of) in enumerate(zip(drawn, described, strict=True), rows.start):
            for x, (character, what) in enumerate(zip(line, names_of, strict=True), columns.start):
                if character == " " or (x, y) == (here_x, here_y):
                    continue
                if (character, what) not in known:
                    known.add((character, what))
                    legend.setdefault(character, []).append(what)
                if what not in _PLAIN:
                    terrain = bool(nethack.glyph_is_cmap(glyphs[y, x]) and not nethack.glyph_is_trap(glyphs[y, x]))
                    found.setdefault(what, []).append((x - here_x, y - here_y, terrain))
        told = "Seen: " + ("; ".join(_whereabouts(what, places) for what, places in found.items()) or "nothing notable")
        if self._layout == "language":
            return [self._around(), told]
        return [
            "Map (north is up):",
            *(line.rstrip() for line in drawn),
            "Legend: " + "; ".join(f"{character} {' or '.join(names)}" for character, names in legend.items()),
            told,
        ]

    def _shown(self, screen: NDArray[np.uint8]) -> tuple[slice, slice]:
        """Rows and columns of the screen that are shown."""
        if self._area is not None:
            left, top, width, height = self._area
            rows, columns = slice(top, top + height), slice(left, left + width)
        else:
            seen = screen[_MAP] != _BLANK
            ys, xs = np.flatnonzero(seen.any(axis=1)) + _MAP.start, np.flatnonzero(seen.any(axis=0))
            rows, columns = slice(int(ys[0]), int(ys[-1]) + 1), slice(int(xs[0]), int(xs[-1]) + 1)
        if not self._crop:
            return rows, columns
        (x, y), reach = self._game.position, self._crop // 2
        return _within(rows, y, reach), _within(columns, x, reach)

    def _around(self) -> str:
        """The eight cells next to the hero, by what they are."""
        x, y = self._game.position
        around: dict[str, list[str]] = {}
        for word, (dx, dy) in STEPS.items():
            what = self._game.describe(x + dx, y + dy) if 0 <= x + dx < _WIDTH and _MAP.start <= y + dy < _MAP.stop else ""
            around.setdefault(what or "nothing seen", []).append(word)
        return "Around you: " + "; ".join(f"{what}: {', '.join(words)}" for what, words in around.items())

    def _carried(self) -> list[str]:
        inventory = self._game.inventory()
        if inventory == self._inventory:
            return []
        self._inventory = inventory
        return ["You carry: " + ("; ".join(item for _, item in inventory) or "nothing")]


def _within(shown: slice, centre: int, reach: int) -> slice:
    """The part of `shown` at most `reach` from `centre`."""
    return slice(max(shown.start, centre - reach), min(shown.stop, centre + reach + 1))


def _whereabouts(what: str, places: list[tuple[int, int, bool]]) -> str:
    nearest = sorted(places, key=lambda place: (max(abs(place[0]), abs(place[1])), place))
    terrain = nearest[0][2]
    if terrain and len(nearest) > 1:
        return f"{what}: {len(nearest)} cells, the nearest {_offset(*nearest[0][:2])}"
    more = len(nearest) - _MOST_OF_A_KIND
    told = [*(_offset(dx, dy) for dx, dy, _ in nearest[:_MOST_OF_A_KIND]), *([f"and {more} more"] if more > 0 else [])]
    return f"{what}: {', '.join(told)}"


def _offset(dx: int, dy: int) -> str:
    parts = [f"{abs(dy)} {'north' if dy < 0 else 'south'}"] * (dy != 0) + [f"{abs(dx)} {'west' if dx < 0 else 'east'}"] * (dx != 0)
    return " ".join(parts)
