"""Reading an ALFWorld problem: the PDDL text of one game → a `House`, which never changes, with everything as small numbers.

An ALFWorld problem lists what is where (``(:init …)``) and one of six goals (``(:goal …)``). Things are named after their internal ids as
the original names them: sorted by id, the copies of a type are numbered downwards, so the first in every listing has the highest number.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

Facts = Mapping[str, list[list[str]]]

_FACT = re.compile(r"\(\s*([a-z=]+)\s+([^()]+)\)")
_SEPARATOR = "_bar_"


class TaskType(StrEnum):
    """The six tasks, by ALFWorld's names."""

    PLACE = "pick_and_place_simple"
    LIGHT = "look_at_obj_in_light"
    CLEAN = "pick_clean_then_place_in_recep"
    HEAT = "pick_heat_then_place_in_recep"
    COOL = "pick_cool_then_place_in_recep"
    TWO = "pick_two_obj_and_place"


_GOAL_PREDICATES = {
    TaskType.PLACE: {"inreceptacle", "objecttype", "receptacletype"},
    TaskType.TWO: {"inreceptacle", "objecttype", "receptacletype", "="},
    TaskType.CLEAN: {"inreceptacle", "objecttype", "receptacletype", "cleanable", "isclean"},
    TaskType.HEAT: {"inreceptacle", "objecttype", "receptacletype", "heatable", "ishot"},
    TaskType.COOL: {"inreceptacle", "objecttype", "receptacletype", "coolable", "iscool"},
    TaskType.LIGHT: {"inreceptacle", "objecttype", "toggleable", "istoggled", "receptacleatlocation", "atlocation", "holds"},
}


@dataclass(frozen=True, slots=True)
class Goal:
    """What must become true: something of type `thing`, as `task` says, in or on a `target` (or held in the light of a `target`)."""

    task: TaskType
    thing: str
    target: str


@dataclass(frozen=True, slots=True)
class House:
    """A room as it is when an episode begins. Things (objects and receptacles) are numbered in the order of their ids, so that sorting
    numbers gives the order of every listing; places are numbered from 0. `names[thing]` is what the player reads, such as "mug 2"."""

    names: tuple[str, ...]
    numbers: Mapping[str, int]
    types: tuple[str, ...]
    start: int
    place_of: Mapping[int, int]
    receptacles_at: Mapping[int, tuple[int, ...]]
    can_contain: Mapping[str, frozenset[str]]
    properties: Mapping[str, frozenset[int]]
    inside: Mapping[int, frozenset[int]]
    nested: Mapping[int, tuple[int, ...]]
    objects_at: Mapping[int, frozenset[int]]
    goal: Goal

    @property
    def receptacles(self) -> Iterable[int]:
        """All receptacles one can go to, in the order of their ids."""
        return self.place_of.keys()

    def having(self, fact: str) -> frozenset[int]:
        """The things of which ``(fact thing)`` holds at the start, such as ``openable`` or ``iscool``."""
        return self.properties.get(fact, frozenset())


def read_problem(text: str) -> House:
    """Parse a problem of the ALFRED domain. Raises ValueError that says what is wrong with it."""
    init, goal = split_problem(text.lower())
    facts = _facts(init)
    if not facts.get("atlocation"):
        raise ValueError("its PDDL problem does not say where the agent begins")
    try:
        return _house(facts, read_goal(goal))
    except (KeyError, IndexError) as error:
        raise ValueError(f"a fact of its PDDL problem is broken ({error})") from error


def split_problem(text: str) -> tuple[str, str]:
    """What follows ``(:init`` and what follows ``(:goal``. Raises ValueError when it is no whole problem of the ALFRED domain."""
    if "(:domain alfred)" not in text:
        raise ValueError("its PDDL problem is not of the domain 'alfred'")
    before, found, goal = text.partition("(:goal")
    _, begun, init = before.partition("(:init")
    if not found or not begun or text.count("(") > text.count(")"):
        raise ValueError("its PDDL problem is cut off, or has no (:init …) and (:goal …)")
    return init, goal


def read_goal(text: str) -> Goal:
    """The goal in the part of a problem that follows ``(:goal``. Raises ValueError when it is none of the six."""
    facts = _facts(text.lower())
    task = next((task for task, predicates in _GOAL_PREDICATES.items() if predicates == facts.keys()), None)
    if task is None:
        raise ValueError(f"its goal is none of ALFWorld's six ({', '.join(sorted(facts)) or 'empty'})")
    types = {variable: _type(name) for variable, name in facts["objecttype"]}
    if task is TaskType.LIGHT:
        [[lamp]], [[_, held]] = facts["istoggled"], facts["holds"]
        return Goal(task, types[held], types[lamp])
    return Goal(task, next(iter(types.values())), _type(facts["receptacletype"][0][1]))


def _facts(text: str) -> Facts:
    """predicate → the arguments of each of its facts."""
    facts: dict[str, list[list[str]]] = defaultdict(list)
    for predicate, arguments in _FACT.findall(text):
        facts[predicate].append(arguments.split())
    return facts


def _house(facts: Facts, goal: Goal) -> House:
    ids = sorted({word for arguments in facts.values() for words in arguments for word in words if _is_thing(word)})
    number = {identity: rank for rank, identity in enumerate(ids)}
    places: dict[str, int] = {}
    types = {**dict(_pairs(facts, "objecttype")), **dict(_pairs(facts, "receptacletype"))}
    place_of = {
        number[receptacle]: places.setdefault(place, len(places))
        for receptacle, place in sorted(_pairs(facts, "receptacleatlocation"))
    }
    receptacles_at: dict[int, list[int]] = defaultdict(list)
    for there, place in place_of.items():
        receptacles_at[place].append(there)
    objects_at: dict[int, set[int]] = defaultdict(set)
    for thing, where in _pairs(facts, "objectatlocation"):
        objects_at[places.setdefault(where, len(places))].add(number[thing])
    inside: dict[int, set[int]] = {receptacle: set() for receptacle in place_of}
    for thing, where in _pairs(facts, "inreceptacle"):
        inside.setdefault(number[where], set()).add(number[thing])
    nested: dict[int, list[int]] = defaultdict(list)
    for thing, where in sorted(_pairs(facts, "inreceptacleobject")):
        nested[number[where]].append(number[thing])
    can_contain: dict[str, set[str]] = defaultdict(set)
    for receptacle, thing in _pairs(facts, "cancontain"):
        can_contain[_type(receptacle)].add(_type(thing))
    names = _names(ids)
    return House(
        names=tuple(names),
        numbers={name: rank for rank, name in enumerate(names)},
        types=tuple(_type(types.get(identity, "")) for identity in ids),
        start=places.setdefault(facts["atlocation"][0][1], len(places)),
        place_of=place_of,
        receptacles_at={place: tuple(found) for place, found in receptacles_at.items()},
        can_contain={receptacle: frozenset(things) for receptacle, things in can_contain.items()},
        properties={
            predicate: frozenset(number[words[0]] for words in arguments)
            for predicate, arguments in facts.items()
            if len(arguments[0]) == 1 and arguments[0][0] in number
        },
        inside={receptacle: frozenset(things) for receptacle, things in inside.items()},
        nested={thing: tuple(contents) for thing, contents in nested.items()},
        objects_at={place: frozenset(things) for place, things in objects_at.items()},
        goal=goal,
    )


def _pairs(facts: Facts, predicate: str) -> list[tuple[str, str]]:
    return [(words[0], words[1]) for words in facts.get(predicate, [])]


def _is_thing(word: str) -> bool:
    return _SEPARATOR in word and not word.startswith("loc_")


def _type(name: str) -> str:
    return name.removesuffix("type")


def _names(ids: list[str]) -> list[str]:
    """ "mug 2", "mug 1", … in the order of the ids; a sink or bath that is a basin says so."""
    kinds = [identity.partition(_SEPARATOR)[0] + ("basin" if "basin" in identity else "") for identity in ids]
    left = Counter(kinds)
    names = []
    for kind in kinds:
        names.append(f"{kind} {left[kind]}")
        left[kind] -= 1
    return names
