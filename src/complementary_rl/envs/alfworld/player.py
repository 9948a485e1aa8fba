"""A scripted player, for baselines and to see that games can be won. It reads what the game says and knows no more than that.

It looks for things where they usually are (`household.PLACES`), open surfaces before what has to be opened, and remembers what it saw.
"""

import re
from collections.abc import Generator

from complementary_rl.envs.alfworld.game import NOTHING
from complementary_rl.envs.alfworld.household import APPLIANCES, PLACES, PROPERTIES
from complementary_rl.envs.alfworld.pddl import TaskType
from complementary_rl.envs.alfworld.phrases import PHRASES

_SEEN = re.compile(r"\ba (\w+ \d+)")
_USUAL = {thing.lower(): [place.lower() for place in places] for thing, places in PLACES.items()}
_CLOSED = {name.lower() for name in PROPERTIES["openable"]}
_CHANGES = {TaskType.CLEAN: "clean", TaskType.HEAT: "heat", TaskType.COOL: "cool"}
_TASKS = [
    (task, re.compile(re.escape(phrase).replace(r"\{thing\}", r"(?P<thing>\w+)").replace(r"\{target\}", r"(?P<target>\w+)")))
    for task, phrases in PHRASES.items()
    for phrase in phrases
]

Commands = Generator[str, str, None]


def understand(text: str) -> tuple[TaskType, str, str]:
    """The type, thing and target of a task in ALFWorld's words. Raises ValueError when it is said otherwise."""
    for task, phrase in _TASKS:
        if match := phrase.fullmatch(text):
            return task, match["thing"], match["target"]
    raise ValueError(f"not a task in ALFWorld's words: {text!r}")


class Player:
    """Plays one game: ask `play` with the opening for commands and send what the game says to each.

    ``commands = Player().play(opening); action = next(commands); action = commands.send(observation); …``
    """

    def __init__(self) -> None:
        self._receptacles: list[str] = []
        # What is known to lie where; receptacles that were never looked into are missing.
        self._contents: dict[str, list[str]] = {}
        self._here = ""

    def play(self, opening: str) -> Commands:
        """Yields commands, then "look" for ever when there is nothing left to try. Raises ValueError for a task it cannot read."""
        room, _, rest = opening.partition("Your task is to: ")
        self._receptacles = _SEEN.findall(room)
        task, thing, target = understand(rest.splitlines()[0].removesuffix("."))
        if task is TaskType.LIGHT:
            if (yield from self._fetch(thing)) and (lamp := (yield from self._find(target))):
                yield f"use {lamp}"
        else:
            yield from self._bring(thing, target, 2 if task is TaskType.TWO else 1, _CHANGES.get(task))
        while True:
            yield "look"

    def _bring(self, thing: str, target: str, wanted: int, verb: str | None) -> Commands:
        """Take `wanted` things to one and the same target, treated on the way."""
        goal = next((place for place in self._receptacles if _type(place) == target), None)
        for _ in range(wanted if goal else 0):
            # Where one is enough, it may have to be taken out of the target to be treated; where two are, they stay there.
            found = yield from self._fetch(thing, avoid=goal if wanted > 1 else None)
            if not found:
                return
            if verb:
                appliance = next(place for place in self._receptacles if _type(place) == APPLIANCES[verb].lower())
                yield from self._go(appliance, look=False)
                yield f"{verb} {found} with {appliance}"
            assert goal is not None
            yield from self._go(goal)
            yield f"move {found} to {goal}"
            self._contents.setdefault(goal, []).append(found)

    def _fetch(self, thing: str, avoid: str | None = None) -> Generator[str, str, str | None]:
        """Find and take something of a type that does not lie in `avoid`; its name, or None where there is none."""
        found = yield from self._find(thing, avoid)
        if found:
            self._contents[self._here].remove(found)
            yield f"take {found} from {self._here}"
        return found

    def _find(self, thing: str, avoid: str | None = None) -> Generator[str, str, str | None]:
        """Stand before something of a type; its name, or None when every receptacle has been looked into."""
        while True:
            for place, things in self._contents.items():
                for found in things if place != avoid else ():
                    if _type(found) == thing:
                        if place != self._here:
                            yield from self._go(place)
                        return found
            usual = _USUAL.get(thing, [])
            left = [place for place in self._receptacles if place not in self._contents]
            if not left:
                return None
            yield from self._go(min(left, key=lambda place: _effort(_type(place), usual)))

    def _go(self, place: str, look: bool = True) -> Commands:
        """Go to a receptacle and, unless not to `look`, open it; note what is in it."""
        seen = yield f"go to {place}"
        if seen == NOTHING:
            # Already in this place, which several receptacles share.
            seen = yield f"examine {place}"
        self._here = place
        if look and "closed" in seen:
            seen = yield f"open {place}"
        if "closed" not in seen:
            self._contents[place] = _SEEN.findall(seen)


def _type(name: str) -> str:
    return name.partition(" ")[0]


def _effort(kind: str, usual: list[str]) -> tuple[bool, bool, int]:
    """Order of search: usual places first, of these the ones that are open, of these the likeliest."""
    return kind not in usual, kind in _CLOSED, usual.index(kind) if kind in usual else 0
