"""A small kitchen in ALFWorld's format, written by hand: every rule has something to act on, and numbers can be told by eye."""

import json
from pathlib import Path

# id, type, place. Ids sort as written, and copies of a type are numbered downwards: the first drawer is drawer 2.
RECEPTACLES = [
    ("Cabinet_bar_1", "Cabinet", "loc_bar_1"),
    ("CounterTop_bar_1", "CounterTop", "loc_bar_2"),
    ("Drawer_bar_1", "Drawer", "loc_bar_3"),
    ("Drawer_bar_2", "Drawer", "loc_bar_3"),
    ("Fridge_bar_1", "Fridge", "loc_bar_4"),
    ("Microwave_bar_1", "Microwave", "loc_bar_5"),
    ("Sink_bar_1_bar_SinkBasin", "SinkBasin", "loc_bar_6"),
]
# id, type, where it lies, what can be done with it.
OBJECTS = [
    ("Apple_bar_1", "Apple", ["CounterTop_bar_1"], "pickupable cleanable heatable coolable sliceable"),
    ("Apple_bar_2", "Apple", ["Fridge_bar_1"], "pickupable cleanable heatable coolable sliceable isCool"),
    ("DeskLamp_bar_1", "DeskLamp", ["Drawer_bar_1"], "toggleable"),
    ("Knife_bar_1", "Knife", ["CounterTop_bar_1"], "pickupable cleanable"),
    ("Mug_bar_1", "Mug", ["CounterTop_bar_1"], "pickupable cleanable heatable coolable isReceptacleObject"),
    ("Pen_bar_1", "Pen", ["Drawer_bar_1", "Drawer_bar_2"], "pickupable"),
    ("Sink_bar_1", "Sink", ["CounterTop_bar_1"], ""),
]
CONTAINS = {
    "Cabinet": "Mug",
    "CounterTop": "Apple Mug Knife",
    "Drawer": "Knife Pen",
    "Fridge": "Apple Mug",
    "Microwave": "Apple Mug",
    "SinkBasin": "Apple Mug Knife",
}
_INSIDE = "(objectType ?o {thing}Type) (receptacleType ?r {target}Type) (inReceptacle ?o ?r)"
GOALS = {
    "pick_and_place_simple": f"(exists (?r - receptacle) (exists (?o - object) (and {_INSIDE})))",
    "pick_clean_then_place_in_recep": f"(exists (?r - receptacle) (exists (?o - object) (and (cleanable ?o) (isClean ?o) {_INSIDE})))",
    "pick_heat_then_place_in_recep": f"(exists (?r - receptacle) (exists (?o - object) (and (heatable ?o) (isHot ?o) {_INSIDE})))",
    "pick_cool_then_place_in_recep": f"(exists (?r - receptacle) (exists (?o - object) (and (coolable ?o) (isCool ?o) {_INSIDE})))",
    "pick_two_obj_and_place": (
        f"(exists (?r - receptacle) (exists (?o - object) (and {_INSIDE} (exists (?o2 - object) (and (not (= ?o ?o2)) "
        + _INSIDE.replace("?o ", "?o2 ")
        + "))))) "
    ),
    "look_at_obj_in_light": (
        "(exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and (objectType ?ot {target}Type) (toggleable ?ot) "
        "(isToggled ?ot) (receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r))) "
        "(exists (?o - object ?a - agent) (and (objectType ?o {thing}Type) (holds ?a ?o)))"
    ),
}


def kitchen(task: str = "pick_and_place_simple", thing: str = "Mug", target: str = "Cabinet") -> str:
    """The PDDL problem of the kitchen with a goal."""
    facts = ["(atLocation agent1 loc_bar_0)"]
    for identity, kind, place in RECEPTACLES:
        facts += [f"(receptacleType {identity} {kind}Type)", f"(receptacleAtLocation {identity} {place})"]
        facts += [f"(openable {identity})"] if kind in ("Cabinet", "Drawer", "Fridge", "Microwave") else []
    places = {identity: place for identity, _, place in RECEPTACLES}
    for identity, kind, inside, properties in OBJECTS:
        facts += [f"(objectType {identity} {kind}Type)", f"(objectAtLocation {identity} {places[inside[0]]})"]
        facts += [f"(inReceptacle {identity} {receptacle})" for receptacle in inside]
        facts += [f"({fact} {identity})" for fact in properties.split()]
    facts += [f"(canContain {kind}Type {name}Type)" for kind, names in CONTAINS.items() for name in names.split()]
    types = [f"{kind}Type - rtype" for kind in CONTAINS] + [
        f"{kind}Type - otype" for kind in dict.fromkeys([*(kind for _, kind, _, _ in OBJECTS), "ButterKnife"])
    ]
    things = [f"{identity} - object" for identity, *_ in OBJECTS] + [f"{identity} - receptacle" for identity, *_ in RECEPTACLES]
    declared = ["agent1 - agent", *types, *things, *(f"loc_bar_{number} - location" for number in range(7))]
    goal = GOALS[task].format(thing=thing, target=target)
    return (
        "(define (problem kitchen)\n(:domain alfred)\n(:objects\n" + "\n".join(declared) + "\n)\n"
        "(:init\n" + "\n".join(facts) + f"\n)\n(:goal (and {goal})))\n"
    )


def official_game(folder: Path, text: str | None = None, wording: str = "put a mug in cabinet", **changes: object) -> Path:
    """Write ``game.tw-pddl`` as the official release has it; `changes` replace keys, None leaves one out."""
    game = {
        "pddl_domain": "(define (domain alfred))",
        "grammar": f'"task": [{{"rhs": "Your task is to: {wording}."}}]',
        "pddl_problem": text or kitchen(),
        "solvable": True,
        "walkthrough": [],
        **changes,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "game.tw-pddl"
    path.write_text(json.dumps({key: value for key, value in game.items() if value is not None}))
    return path
