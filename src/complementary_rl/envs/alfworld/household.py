"""Common sense about households: which things there are, what can be done with them, where they lie, and what is in a room.

Written for the generator of games and for the scripted player. `PLACES` names the receptacles a thing may lie in, the likeliest first.
"""

from collections.abc import Mapping
from dataclasses import dataclass


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_FOOD = "CounterTop DiningTable SideTable Fridge SinkBasin Microwave GarbageCan"
_CUTLERY = "CounterTop DiningTable SideTable SinkBasin Drawer"
_SPICE = "CounterTop DiningTable SideTable Shelf Cabinet Drawer"
_COOKWARE = "StoveBurner CounterTop DiningTable SinkBasin Shelf Fridge Cabinet"
_BATH = "CounterTop Toilet SideTable Shelf Cart Dresser Cabinet Drawer GarbageCan"
_DESK = "Desk SideTable Dresser Shelf CoffeeTable DiningTable CounterTop TVStand Drawer"
_SEAT = "Sofa CoffeeTable ArmChair SideTable Ottoman Desk Dresser DiningTable TVStand CounterTop Shelf Drawer"
_SHOW = "CoffeeTable Shelf SideTable DiningTable Dresser Desk CounterTop TVStand Cabinet"
_SMALL = f"{_SEAT} Safe Cabinet"

PLACES: Mapping[str, tuple[str, ...]] = {
    thing: _words(places)
    for thing, places in {
        "AlarmClock": "Desk SideTable Dresser Shelf DiningTable CounterTop",
        "Apple": _FOOD,
        "BaseballBat": "Bed SideTable DiningTable",
        "BasketBall": "Bed Desk Dresser SideTable DiningTable",
        "Book": "Bed Desk CoffeeTable SideTable Dresser Sofa CounterTop DiningTable ArmChair Shelf TVStand Drawer Cabinet",
        "Bowl": "DiningTable CounterTop CoffeeTable Desk Shelf SideTable Dresser Fridge Cabinet SinkBasin Microwave TVStand",
        "Box": "DiningTable Sofa CoffeeTable Desk SideTable Shelf Dresser ArmChair Ottoman TVStand Cabinet",
        "Bread": "CounterTop DiningTable SideTable Fridge GarbageCan Microwave",
        "ButterKnife": _CUTLERY,
        "CD": "Desk Dresser SideTable Shelf GarbageCan DiningTable CounterTop Drawer Safe Cabinet",
        "Candle": _BATH.replace("GarbageCan", "CoffeeTable DiningTable TVStand"),
        "CellPhone": f"Bed {_SMALL}",
        "Cloth": "BathtubBasin CounterTop SinkBasin Shelf Toilet Cart Dresser SideTable Cabinet Drawer LaundryHamper GarbageCan",
        "CreditCard": _SMALL,
        "Cup": "CounterTop DiningTable SinkBasin SideTable Shelf Fridge Microwave Cabinet",
        "DeskLamp": "Desk SideTable Dresser Shelf CoffeeTable",
        "DishSponge": "CounterTop DiningTable SinkBasin BathtubBasin Toilet SideTable Shelf Cart GarbageCan Drawer Cabinet",
        "Egg": _FOOD,
        "Fork": _CUTLERY,
        "Glassbottle": "CounterTop DiningTable SinkBasin Shelf GarbageCan Fridge Cabinet Microwave",
        "HandTowel": "HandTowelHolder CounterTop SinkBasin BathtubBasin Toilet Shelf Cart SideTable Cabinet Drawer GarbageCan",
        "Kettle": "StoveBurner CounterTop DiningTable SinkBasin Shelf SideTable Cabinet",
        "KeyChain": _SMALL,
        "Knife": _CUTLERY,
        "Ladle": "CounterTop DiningTable SinkBasin Drawer Cabinet",
        "Laptop": f"Bed {_SEAT}".removesuffix(" Shelf Drawer"),
        "Lettuce": "CounterTop DiningTable SideTable Fridge SinkBasin GarbageCan",
        "Mug": "CoffeeMachine CounterTop DiningTable Desk SideTable Shelf Dresser SinkBasin Fridge Microwave Cabinet",
        "Newspaper": f"{_SEAT} Cabinet GarbageCan",
        "Pan": _COOKWARE,
        "PaperTowelRoll": "CounterTop DiningTable GarbageCan Shelf SideTable Toilet Cart",
        "Pen": f"{_DESK} GarbageCan",
        "Pencil": f"{_DESK} GarbageCan",
        "PepperShaker": _SPICE,
        "Pillow": "Bed Sofa ArmChair Ottoman",
        "Plate": "CounterTop DiningTable CoffeeTable Shelf SideTable SinkBasin Fridge Microwave Cabinet Dresser TVStand",
        "Plunger": "Cart Cabinet",
        "Pot": _COOKWARE,
        "Potato": _FOOD,
        "RemoteControl": _SEAT,
        "SaltShaker": _SPICE,
        "ScrubBrush": "Cart Cabinet",
        "SoapBar": f"{_BATH} SinkBasin BathtubBasin",
        "SoapBottle": f"DiningTable {_BATH}",
        "Spatula": _CUTLERY,
        "Spoon": _CUTLERY,
        "SprayBottle": f"DiningTable {_BATH}",
        "Statue": f"{_SHOW} Safe",
        "TeddyBear": "Bed",
        "TennisRacket": "Bed Desk Dresser SideTable DiningTable",
        "TissueBox": "CounterTop CoffeeTable Desk SideTable DiningTable Shelf Toilet Dresser TVStand Cart Drawer Cabinet GarbageCan",
        "ToiletPaper": f"ToiletPaperHanger {_BATH}",
        "Tomato": _FOOD,
        "Towel": "TowelHolder CounterTop BathtubBasin",
        "Vase": f"{_SHOW} Safe",
        "Watch": f"{_DESK} Safe",
        "WateringCan": "CoffeeTable Shelf SideTable DiningTable Desk Dresser Drawer Cabinet",
        "WineBottle": "CounterTop DiningTable SideTable Shelf GarbageCan Fridge Cabinet",
    }.items()
}

_HEATED = {"Apple", "Bread", "Cup", "Egg", "Mug", "Plate", "Potato", "Tomato"}
_DISHES = {"Bowl", "Cup", "Mug", "Pan", "Plate", "Pot"}
_TOOLS = {"ButterKnife", "Fork", "Kettle", "Knife", "Ladle", "Spatula", "Spoon"}
_LAMPS = {"DeskLamp"}

PROPERTIES: Mapping[str, frozenset[str]] = {
    "pickupable": frozenset(PLACES) - _LAMPS,
    "cleanable": frozenset({"Apple", "Cloth", "DishSponge", "Egg", "Lettuce", "Potato", "SoapBar", "Tomato"} | _DISHES | _TOOLS),
    "heatable": frozenset(_HEATED),
    "coolable": frozenset(_HEATED | _DISHES | {"Lettuce", "WineBottle"}),
    "sliceable": frozenset({"Apple", "Bread", "Egg", "Lettuce", "Potato", "Tomato"}),
    "toggleable": frozenset(_LAMPS),
    "isReceptacleObject": frozenset(_DISHES | {"Box"}),
    "openable": frozenset({"Cabinet", "Drawer", "Fridge", "Microwave", "Safe"}),
}
APPLIANCES: Mapping[str, str] = {"clean": "SinkBasin", "heat": "Microwave", "cool": "Fridge"}


@dataclass(frozen=True, slots=True)
class RoomKind:
    """What a kind of room holds: `receptacles` by least and greatest number, and the types of `things` found in it."""

    receptacles: Mapping[str, tuple[int, int]]
    things: tuple[str, ...]


ROOMS: Mapping[str, RoomKind] = {
    "kitchen": RoomKind(
        {
            "Cabinet": (4, 14),
            "CoffeeMachine": (1, 1),
            "CounterTop": (1, 3),
            "DiningTable": (0, 2),
            "Drawer": (2, 9),
            "Fridge": (1, 1),
            "GarbageCan": (1, 1),
            "Microwave": (1, 1),
            "Shelf": (0, 3),
            "SideTable": (0, 1),
            "SinkBasin": (1, 1),
            "StoveBurner": (4, 4),
            "Toaster": (1, 1),
        },
        _words(
            "Apple Bowl Bread ButterKnife Cup DishSponge Egg Fork Glassbottle Kettle Knife Ladle Lettuce Mug Pan PaperTowelRoll "
            "PepperShaker Plate Pot Potato SaltShaker SoapBottle Spatula Spoon Statue Tomato Vase WineBottle"
        ),
    ),
    "bathroom": RoomKind(
        {
            "BathtubBasin": (0, 1),
            "Cabinet": (2, 6),
            "Cart": (0, 1),
            "CounterTop": (1, 2),
            "Drawer": (0, 6),
            "GarbageCan": (1, 1),
            "HandTowelHolder": (1, 2),
            "Shelf": (0, 3),
            "SideTable": (0, 1),
            "SinkBasin": (1, 2),
            "Toilet": (1, 1),
            "ToiletPaperHanger": (1, 1),
            "TowelHolder": (1, 2),
        },
        _words("Candle Cloth DishSponge HandTowel SoapBar SoapBottle SprayBottle TissueBox ToiletPaper Towel"),
    ),
    "bedroom": RoomKind(
        {
            "ArmChair": (0, 2),
            "Bed": (1, 2),
            "Cabinet": (0, 4),
            "Desk": (1, 2),
            "Drawer": (2, 10),
            "Dresser": (0, 1),
            "GarbageCan": (1, 1),
            "LaundryHamper": (0, 1),
            "Safe": (0, 1),
            "Shelf": (0, 6),
            "SideTable": (1, 2),
        },
        _words(
            "AlarmClock BaseballBat BasketBall Book Bowl Box CD CellPhone CreditCard DeskLamp KeyChain Laptop Mug Pen Pencil Pillow "
            "Statue TeddyBear TennisRacket TissueBox Vase Watch"
        ),
    ),
    "living room": RoomKind(
        {
            "ArmChair": (1, 2),
            "Cabinet": (0, 4),
            "CoffeeTable": (1, 2),
            "DiningTable": (0, 1),
            "Drawer": (0, 6),
            "Dresser": (0, 1),
            "GarbageCan": (1, 1),
            "Ottoman": (0, 1),
            "Shelf": (0, 6),
            "SideTable": (1, 3),
            "Sofa": (1, 2),
            "TVStand": (0, 1),
        },
        _words(
            "Book Bowl Box Candle CellPhone CreditCard DeskLamp KeyChain Laptop Newspaper Pen Pencil Pillow Plate RemoteControl Statue "
            "TissueBox Vase Watch WateringCan"
        ),
    ),
}
