"""Seeded households in ALFWorld's own format, for when there are no official games: rooms, and games in them that can be won.

A room has its receptacles and their places; a game of that room lays its things out anew and asks for one of the six tasks. All
rooms of one seed differ in what furniture they have, so held-out rooms are new ones.
"""

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from complementary_rl.envs.alfworld.household import APPLIANCES, PLACES, PROPERTIES, ROOMS
from complementary_rl.envs.alfworld.pddl import TaskType
from complementary_rl.envs.alfworld.phrases import PHRASES
from complementary_rl.seeds import rng
from complementary_rl.types import Split

_TRAIN_ROOMS, _HELDOUT_ROOMS = 20, 5
_KINDS: Mapping[TaskType, tuple[str, ...]] = {
    TaskType.PLACE: tuple(ROOMS),
    TaskType.TWO: tuple(ROOMS),
    TaskType.CLEAN: ("kitchen", "bathroom"),
    TaskType.HEAT: ("kitchen",),
    TaskType.COOL: ("kitchen",),
    TaskType.LIGHT: ("bedroom", "living room"),
}
_CHANGES = {TaskType.CLEAN: "clean", TaskType.HEAT: "heat", TaskType.COOL: "cool"}
_LAMP = "DeskLamp"
# Neighbours in one place can be reached without a step, as in some of the official rooms.
_SHARED_PLACE = 0.15


@dataclass(frozen=True, slots=True)
class Room:
    """`receptacles` by id: (type, place). `types` are the types among them."""

    name: str
    kind: str
    receptacles: Mapping[str, tuple[str, str]]
    types: frozenset[str]


@functools.cache
def rooms(seed: int, split: Split) -> tuple[Room, ...]:
    """The rooms of a split, a fixed number of each kind. All rooms of a seed have different furniture, whichever their split."""
    first, count = (0, _TRAIN_ROOMS) if split == "train" else (_TRAIN_ROOMS, _HELDOUT_ROOMS)
    return tuple(room for kind in ROOMS for room in _draw_rooms(seed, kind)[first : first + count])


def generate(seed: int, split: Split, index: int, task: TaskType) -> tuple[str, str, str]:
    """Game number `index` of a split: its id, the wording of its task, and its PDDL problem."""
    random = rng("alfworld-game", seed, split, index)
    options = _options(seed, split, task)
    room, goals = options[random.integers(len(options))]
    thing, target = goals[random.integers(len(goals))]
    wording = PHRASES[task][random.integers(len(PHRASES[task]))].format(thing=thing.lower(), target=target.lower())
    receptacle = "None" if task is TaskType.LIGHT else target
    lamp = target if task is TaskType.LIGHT else "None"
    identity = f"{task}-{thing}-{lamp}-{receptacle}-{room.name}/trial_{index}"
    return identity, wording, _problem(room, _lay_out(random, room, task, thing, target), _goal_text(task, thing, target))


@functools.cache
def _options(seed: int, split: Split, task: TaskType) -> list[tuple[Room, list[tuple[str, str]]]]:
    """The rooms for a task, each with its goals (thing, target); some small rooms have none."""
    suitable = (room for room in rooms(seed, split) if room.kind in _KINDS[task])
    return [(room, goals) for room in suitable if (goals := _goals(room, task))]


def _draw_rooms(seed: int, kind: str) -> list[Room]:
    random = rng("alfworld-rooms", seed, kind)
    drawn: dict[tuple[int, ...], Room] = {}
    while len(drawn) < _TRAIN_ROOMS + _HELDOUT_ROOMS:
        counts = {name: int(random.integers(low, high + 1)) for name, (low, high) in ROOMS[kind].receptacles.items()}
        receptacles: dict[str, tuple[str, str]] = {}
        for name, count in counts.items():
            for copy in range(count):
                place = f"loc_bar_{len(receptacles)}_bar_0_bar_0_bar_60"
                if copy and random.random() < _SHARED_PLACE:
                    place = next(reversed(receptacles.values()))[1]
                receptacles[_identity(random, name)] = (name, place)
        title = f"{kind.replace(' ', '')}{len(drawn) + 1}"
        types = frozenset(name for name, count in counts.items() if count)
        drawn.setdefault(tuple(counts.values()), Room(title, kind, receptacles, types))
    return list(drawn.values())


def _goals(room: Room, task: TaskType) -> list[tuple[str, str]]:
    """(thing, target) that make sense in a room: the thing can be there, be treated, and start somewhere else than in the target."""
    verb = _CHANGES.get(task)
    able = PROPERTIES[f"{verb}able" if verb else "pickupable"]
    possible = {thing: _possible(room, thing) for thing in ROOMS[room.kind].things}
    things = [thing for thing, places in possible.items() if places and thing in able]
    if task is TaskType.LIGHT:
        return [(thing, _LAMP) for thing in things if possible[_LAMP]]
    appliance = APPLIANCES[verb] if verb else None
    return [(thing, target) for thing in things for target in possible[thing] if target != appliance and len(possible[thing]) > 1]


def _possible(room: Room, thing: str) -> list[str]:
    return [place for place in PLACES[thing] if place in room.types]


def _lay_out(random: np.random.Generator, room: Room, task: TaskType, thing: str, target: str) -> list[tuple[str, str, str]]:
    """(id, type, receptacle id) of every thing of the room; those the task is about begin outside of its target."""
    inside: list[tuple[str, str, str]] = []
    for name in ROOMS[room.kind].things:
        least = (2 if task is TaskType.TWO else 1) if name == thing else int(name == _LAMP)
        count = 1 if name == _LAMP else max(least, int(random.integers(0, 4)))
        free = [
            identity
            for identity, (kind, _) in room.receptacles.items()
            if kind in PLACES[name] and not (name == thing and kind == target)
        ]
        inside += [(_identity(random, name), name, free[random.integers(len(free))]) for _ in range(count if free else 0)]
    return inside


def _identity(random: np.random.Generator, name: str) -> str:
    """An id as the official ones are: the type and three coordinates. ALFRED's basins are parts of a sink or bath."""
    coordinates = "".join(
        f"_bar__{'plus' if value >= 0 else 'minus'}_{int(abs(value)):02d}_dot_{int(abs(value) * 100) % 100:02d}"
        for value in random.uniform(-4, 4, size=3)
    )
    whole = name.removesuffix("Basin")
    return f"{whole}{coordinates}" + ("" if whole == name else f"_bar_{name}")


def _goal_text(task: TaskType, thing: str, target: str) -> str:
    if task is TaskType.LIGHT:
        return (
            "(exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and "
            f"(objectType ?ot {target}Type) (toggleable ?ot) (isToggled ?ot) "
            "(receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r)))\n"
            f"(exists (?o - object ?a - agent) (and (objectType ?o {thing}Type) (holds ?a ?o)))"
        )
    inside = f"(objectType ?o {thing}Type) (receptacleType ?r {target}Type) (inReceptacle ?o ?r)"
    if task is TaskType.TWO:
        another = f"(exists (?o2 - object) (and (not (= ?o ?o2)) {inside.replace('?o ', '?o2 ')}))"
        return f"(exists (?r - receptacle) (exists (?o - object) (and {inside} {another})))"
    verb, state = _CHANGES.get(task), {TaskType.CLEAN: "isClean", TaskType.HEAT: "isHot", TaskType.COOL: "isCool"}.get(task)
    treated = f" ({verb}able ?o) ({state} ?o)" if verb else ""
    return f"(exists (?r - receptacle) (exists (?o - object) (and {inside}{treated})))"


def _problem(room: Room, inside: Sequence[tuple[str, str, str]], goal: str) -> str:
    places = dict.fromkeys(place for _, place in room.receptacles.values())
    start = "loc_bar__minus_1_bar_0_bar_0_bar_30"
    # The domain's rules name these types, so they must exist in every room.
    receptacle_types = dict.fromkeys([*(kind for kind, _ in room.receptacles.values()), *APPLIANCES.values()])
    declared = [
        "agent1 - agent",
        *(f"{name}Type - otype" for name in PLACES),
        *(f"{name}Type - rtype" for name in receptacle_types),
        *(f"{identity} - object" for identity, _, _ in inside),
        *(f"{identity} - receptacle" for identity in room.receptacles),
        *(f"{place} - location" for place in (*places, start)),
    ]
    facts = [f"(atLocation agent1 {start})", *_facts(room, inside)]
    return "(define (problem household)\n(:domain alfred)\n(:objects\n{}\n)\n(:init\n{}\n)\n(:goal\n(and\n{}\n)))\n".format(
        "\n".join(declared), "\n".join(facts), goal
    )


def _facts(room: Room, inside: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    for identity, (kind, place) in room.receptacles.items():
        yield f"(receptacleType {identity} {kind}Type)"
        yield f"(receptacleAtLocation {identity} {place})"
        if kind in PROPERTIES["openable"]:
            yield f"(openable {identity})"
    for identity, name, receptacle in inside:
        yield f"(objectType {identity} {name}Type)"
        yield f"(inReceptacle {identity} {receptacle})"
        yield f"(objectAtLocation {identity} {room.receptacles[receptacle][1]})"
        yield from (f"({fact} {identity})" for fact, names in PROPERTIES.items() if name in names)
    present = Counter(name for _, name, _ in inside)
    for name in present:
        yield from (f"(canContain {kind}Type {name}Type)" for kind in _possible(room, name) if name in PROPERTIES["pickupable"])
