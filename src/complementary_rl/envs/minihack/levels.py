"""The MiniHack levels of the paper: how each is made, where it lies on the screen, and what it is in words.

Listing them needs neither MiniHack nor NLE; making one does. Levels are described by the same des-files as MiniHack's own.
"""

from collections.abc import Callable
from dataclasses import dataclass

_ROOM_VARIANTS = ("", "-random", "-dark", "-monster", "-trap", "-ultimate")


@dataclass(frozen=True, slots=True)
class Level:
    """One family of levels.

    `des_file` makes its description for NetHack's level compiler. `size` is (width, height) of the part of the screen it takes
    and `origin` its top left (column, row), None for a centred map. `keys` says whether there are things to pick up and a door
    to unlock, `boulders` whether there are some to push. `description` tells goal and hazards: the actor reads it, and experience is
    found by it. `hint` goes into the rules.
    """

    name: str
    description: str
    des_file: Callable[[], str]
    size: tuple[int, int]
    origin: tuple[int, int] | None = None
    keys: bool = False
    boulders: bool = False
    hint: str = ""


def _room(size: int, variant: str) -> Level:
    dark = variant in ("-dark", "-ultimate")
    monsters = {5: 1, 15: 3}[size] if variant in ("-monster", "-ultimate") else 0
    traps = {5: 1, 15: 15}[size] if variant in ("-trap", "-ultimate") else 0

    def des_file() -> str:
        from minihack import LevelGenerator

        level = LevelGenerator(w=size, h=size, lit=not dark)
        if variant:
            level.add_goal_pos()
        else:
            level.add_goal_pos((size - 1, size - 1))
            level.set_start_pos((0, 0))
        for _ in range(monsters):
            level.add_monster()
        for _ in range(traps):
            level.add_trap()
        return str(level.get_des())

    hazards = []
    if monsters:
        hazards.append("a hostile monster" if monsters == 1 else f"{monsters} hostile monsters")
    if traps:
        hazards.append("a hidden teleport trap" if traps == 1 else f"{traps} hidden teleport traps")
    where = "somewhere in" if variant else "in the opposite corner of"
    sight = "only the cells next to you can be seen" if dark else "all of it can be seen"
    return Level(
        name=f"room-{size}x{size}{variant}",
        description=f"Reach the staircase down {where} a {'dark' if dark else 'lit'} room of {size}x{size} cells; {sight}. "
        f"Hazards: {' and '.join(hazards) or 'none'}.",
        des_file=des_file,
        size=(size, size),
    )


def _maze() -> Level:
    width, height = 11, 11

    def des_file() -> str:
        from minihack import LevelGenerator

        level = LevelGenerator(w=width, h=height, flags=("hardfloor",))
        level.fill_terrain("rect", "-", 0, 0, width - 1, height - 1)
        level.fill_terrain("fillrect", " ", 1, 1, width - 2, height - 2)
        level.add_mazewalk()
        level.add_stair_down()
        return str(level.get_des())

    return Level(
        name="mazewalk-9x9",
        description="Find the staircase down in a maze of 9x9 cells with narrow passages; you see only along straight lines. "
        "Hazards: dead ends.",
        des_file=des_file,
        size=(width, height),
        hint="Passages run straight; cells shown as blank are walls or not seen yet.",
    )


def _key_room() -> Level:
    def des_file() -> str:
        from minihack.envs.keyroom import KeyRoomGenerator

        return str(KeyRoomGenerator(5, 2, lit=False).get_des())

    return Level(
        name="keyroom-dark-s5",
        description="Find the key in a dark room of 5x5 cells, unlock the door of the closet of 2x2 cells inside it, and reach the "
        "staircase down behind that door; only the cells next to you can be seen. Hazards: none.",
        des_file=des_file,
        size=(7, 7),
        origin=(36, 8),
        keys=True,
        hint="Doors are passed straight, never diagonally. To get a key, step onto it and pick it up.",
    )


def _river() -> Level:
    def des_file() -> str:
        from minihack import LevelGenerator

        level = LevelGenerator(map="\n".join([f"{'.' * 18}WW{'.' * 5}"] * 7) + "\n")
        level.set_start_rect((0, 0), (18, 6))
        level.set_area_variable("$boulder_area", type="fillrect", x1=1, y1=1, x2=18, y2=5)
        for _ in range(5):
            level.add_object_area("$boulder_area", name="boulder", symbol="`")
        level.add_goal_pos((24, 2))
        return str(level.get_des())

    return Level(
        name="river-narrow",
        description="Cross a river two cells wide to the staircase down on its eastern bank: push boulders into the water as a "
        "bridge. Hazards: the water, and boulders that get stuck.",
        des_file=des_file,
        size=(25, 7),
        boulders=True,
        hint="You push a boulder by moving into it. A boulder pushed into water fills that cell, and then you can walk over it.",
    )


LEVELS: dict[str, Level] = {
    level.name: level
    for level in (*(_room(size, variant) for size in (5, 15) for variant in _ROOM_VARIANTS), _maze(), _key_room(), _river())
}
