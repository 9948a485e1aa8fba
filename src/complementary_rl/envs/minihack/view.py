"""A NetHack screen as text: what the hero knows, cropped to the level, with a legend and where notable things are."""

import re

from nle import nethack

from complementary_rl.envs.minihack.game import Game

OBSERVE = ("chars", "screen_descriptions", "inv_strs", "inv_letters")
"""The NLE observations a view reads."""

_PLAIN = frozenset({"", "floor of a room", "dark part of a room", "wall", "stone", "solid rock", "dark part of a maze"})
# MiniHack's game data has no rumors, which the artifact key likes to whisper.
_NOISE = re.compile(r"Can't open 'rumors' file\.|Program in disorder!|The key[^.]* whispers:|\"NetHack rumors file [^\"]*\"")
_BLANK = ord(" ")
# Of terrain such as water only the nearest cell is told; things and creatures are told one by one, up to this many a kind.
_MOST_OF_A_KIND = 5


class View:
    """Renders one game; `left`, `top`, `width` and `height` are the level's rectangle on the screen.

    Fog of war is NetHack's: cells that were never seen are blank, and what was seen is shown as remembered.
    """

    def __init__(self, game: Game, left: int, top: int, width: int, height: int) -> None:
        self._game = game
        self._rows = slice(top, top + height)
        self._columns = slice(left, left + width)
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
        characters = self._game.array("chars")[self._rows, self._columns]
        glyphs = self._game.array("glyphs")[self._rows, self._columns]
        here_x, here_y = self._game.position
        legend: dict[str, list[str]] = {"@": ["you"]}
        found: dict[str, list[tuple[int, int, bool]]] = {}
        for row, line in enumerate(characters):
            for column, code in enumerate(line):
                x, y = column + self._columns.start, row + self._rows.start
                if code == _BLANK or (x, y) == (here_x, here_y):
                    continue
                what = self._game.describe(x, y)
                names = legend.setdefault(chr(code), [])
                if what not in names:
                    names.append(what)
                if what not in _PLAIN:
                    terrain = bool(nethack.glyph_is_cmap(glyphs[row, column]) and not nethack.glyph_is_trap(glyphs[row, column]))
                    found.setdefault(what, []).append((x - here_x, y - here_y, terrain))
        drawn = ["".join(map(chr, line)).rstrip() for line in characters]
        told = [_whereabouts(what, places) for what, places in found.items()]
        return [
            "Map (north is up):",
            *drawn,
            "Legend: " + "; ".join(f"{character} {' or '.join(names)}" for character, names in legend.items()),
            "Seen: " + ("; ".join(told) or "nothing notable"),
        ]

    def _carried(self) -> list[str]:
        inventory = self._game.inventory()
        if inventory == self._inventory:
            return []
        self._inventory = inventory
        return ["You carry: " + ("; ".join(item for _, item in inventory) or "nothing")]


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
