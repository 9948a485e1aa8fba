"""The rules of ALFWorld: one game in a `House`, a command at a time, with the original's words.

An own implementation of the rules of alfworld 0.4.2 (an extra, compared in ``tests/envs/test_alfworld_reference.py``), fast enough for
training: a command costs microseconds. What surprises is the original's: one may go only to another place, examine an object only
in one's hand, heat and cool without opening anything, use a lamp in a closed drawer, and an object may lie in two receptacles at once.
"""

import re
from collections.abc import Callable, Iterable, Iterator

from complementary_rl.envs.alfworld.pddl import House, TaskType

NOTHING = "Nothing happens."
HELP = """\
Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
"""

_MIDDLE = "You are in the middle of a room. Looking quickly around you, you see"

_COMMAND = re.compile(
    r"(look|inventory|help)"
    r"|(go to|open|close|examine|use) (\S+ \S+)"
    r"|(take|move|put|heat|clean|cool|slice) (\S+ \S+) (from|to|in|on|in/on|with) (\S+ \S+)"
)
_APPLIANCES = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}
_KNIVES = ("knife", "butterknife")


class Game:
    """One game. `do` commands until `won`."""

    def __init__(self, house: House) -> None:
        self.house = house
        self._place = house.start
        self._held: int | None = None
        self._opened = set(house.having("opened"))
        self._inside = {receptacle: set(things) for receptacle, things in house.inside.items()}
        self._objects_at = {place: set(things) for place, things in house.objects_at.items()}
        # (object, receptacle) that an action has made untrue: what else was never inside is not known to lie beside it.
        self._out_of: set[tuple[int, int]] = set()
        self._state = {fact: set(house.having(fact)) for fact in ("isclean", "ishot", "iscool", "issliced", "istoggled")}
        self._pairs: dict[tuple[str, str], Callable[[int, int], str]] = {
            ("take", "from"): self._take,
            ("move", "to"): self._move,
            **{("put", where): self._move for where in ("in", "on", "in/on")},
            ("clean", "with"): lambda thing, where: self._change("clean", thing, where),
            ("heat", "with"): lambda thing, where: self._change("heat", thing, where),
            ("cool", "with"): lambda thing, where: self._change("cool", thing, where),
            ("slice", "with"): self._slice,
        }
        self._singles: dict[str, Callable[[int], str]] = {
            "go to": self._go,
            "open": self._open,
            "close": self._close,
            "examine": self._examine,
            "use": self._use,
        }
        self._plain: dict[str, Callable[[], str]] = {"look": self._look, "inventory": self._inventory, "help": lambda: HELP}

    def opening(self) -> str:
        """The welcome, with all receptacles of the room; the task is told elsewhere."""
        view = self._look() if self._here() else f"{_MIDDLE} {self._listing(self.house.receptacles)}."
        return f"-= Welcome to TextWorld, ALFRED! =-\n\n{view}"

    def do(self, command: str) -> str:
        """Carry a command out and return what the game says; `NOTHING` where it is no command, or not possible now."""
        match = _COMMAND.fullmatch(command)
        if not match:
            return NOTHING
        plain, verb, name, pair_verb, thing_name, preposition, other_name = match.groups()
        if plain:
            return self._plain[plain]()
        numbers = self.house.numbers
        if verb:
            number = numbers.get(name)
            return NOTHING if number is None else self._singles[verb](number)
        action = self._pairs.get((pair_verb, preposition))
        thing, other = numbers.get(thing_name), numbers.get(other_name)
        return NOTHING if action is None or thing is None or other is None else action(thing, other)

    @property
    def won(self) -> bool:
        """Whether the goal is reached."""
        goal, types = self.house.goal, self.house.types
        if goal.task is TaskType.LIGHT:
            return (
                self._held is not None
                and types[self._held] == goal.thing
                and any(
                    types[thing] == goal.target and thing in self.house.having("toggleable") and thing in self._state["istoggled"]
                    for receptacle in self._here()
                    for thing in self._inside[receptacle]
                )
            )
        wanted = 2 if goal.task is TaskType.TWO else 1
        return any(
            types[receptacle] == goal.target
            and sum(types[thing] == goal.thing and self._is_as_wanted(thing) for thing in things) >= wanted
            for receptacle, things in self._inside.items()
        )

    def admissible(self) -> list[str]:
        """All commands that do something now, sorted, in the dialect with ``move … to …``."""
        return sorted(set(self._admissible()))

    def _is_as_wanted(self, thing: int) -> bool:
        match self.house.goal.task:
            case TaskType.CLEAN:
                return thing in self._state["isclean"] and thing in self.house.having("cleanable")
            case TaskType.HEAT:
                return thing in self._state["ishot"] and thing in self.house.having("heatable")
            case TaskType.COOL:
                return thing in self._state["iscool"] and thing in self.house.having("coolable")
        return True

    def _go(self, receptacle: int) -> str:
        place = self.house.place_of.get(receptacle)
        if place is None or place == self._place:
            return NOTHING
        self._place = place
        return f"You arrive at {self.house.names[receptacle]}. {self._see(receptacle)}"

    def _open(self, receptacle: int) -> str:
        if not self._is_here(receptacle) or receptacle in self._opened or receptacle not in self.house.having("openable"):
            return NOTHING
        self._opened.add(receptacle)
        return f"You open the {self.house.names[receptacle]}. {self._see(receptacle)}"

    def _close(self, receptacle: int) -> str:
        if not self._is_here(receptacle) or receptacle not in self._opened or receptacle not in self.house.having("openable"):
            return NOTHING
        self._opened.remove(receptacle)
        return f"You close the {self.house.names[receptacle]}."

    def _take(self, thing: int, receptacle: int) -> str:
        if not self._can_take(thing, receptacle):
            return NOTHING
        self._held = thing
        self._inside[receptacle].remove(thing)
        self._out_of.add((thing, receptacle))
        self._objects_at.get(self._place, set()).discard(thing)
        return f"You pick up the {self.house.names[thing]} from the {self.house.names[receptacle]}."

    def _move(self, thing: int, receptacle: int) -> str:
        if not self._can_put(thing, receptacle):
            return NOTHING
        self._held = None
        self._inside[receptacle].add(thing)
        self._out_of.discard((thing, receptacle))
        self._objects_at.setdefault(self._place, set()).add(thing)
        return f"You move the {self.house.names[thing]} to the {self.house.names[receptacle]}."

    def _change(self, verb: str, thing: int, receptacle: int) -> str:
        if not self._can_change(verb, thing, receptacle):
            return NOTHING
        if verb == "clean":
            self._state["isclean"].add(thing)
        else:
            now, before = ("ishot", "iscool") if verb == "heat" else ("iscool", "ishot")
            self._state[now].add(thing)
            self._state[before].discard(thing)
        return f"You {verb} the {self.house.names[thing]} using the {self.house.names[receptacle]}."

    def _use(self, thing: int) -> str:
        if not self._can_use(thing):
            return NOTHING
        self._state["istoggled"].add(thing)
        return f"You turn on the {self.house.names[thing]}."

    def _slice(self, thing: int, knife: int) -> str:
        if not self._can_slice(thing, knife):
            return NOTHING
        self._state["issliced"].add(thing)
        return f"You sliced the {self.house.names[thing]} with the {self.house.names[knife]}."

    def _examine(self, number: int) -> str:
        if self._is_here(number):
            return self._see(number)
        if number != self._held:
            return NOTHING
        name = self.house.names[number]
        if number in self.house.having("isreceptacleobject"):
            return f"This is a normal {name}. In it, you see {self._listing(self.house.nested.get(number, ()))}."
        clean, hot, cool, sliced, on = (number in things for things in self._state.values())
        if sliced and (clean or hot or cool):
            return f"This is a {_temperature(hot, cool, clean)} sliced {name}."
        if clean or hot or cool:
            return f"This is a {_temperature(hot, cool, clean) if clean or hot else 'cold'} {name}."
        if on and number in self.house.having("toggleable"):
            return f"This {name} is on."
        if sliced:
            return f"This is a sliced {name}."
        return f"There's nothing special about {name}."

    def _inventory(self) -> str:
        return "You are not carrying anything." if self._held is None else f"You are carrying: a {self.house.names[self._held]}."

    def _look(self) -> str:
        here = self._here()
        if not here:
            # Only the opening lists the receptacles: `look` asks the original for those at the very place where one stands.
            return f"{_MIDDLE} nothing."
        beside = [
            thing
            for thing in sorted(self._objects_at.get(self._place, ()))
            for receptacle in here
            if (thing, receptacle) in self._out_of
        ]
        facing = _join([self.house.names[receptacle] for receptacle in here])
        return f"You are facing the {facing}. Next to it, you see {self._listing(beside)}."

    def _see(self, receptacle: int) -> str:
        name = self.house.names[receptacle]
        if receptacle in self.house.having("openable"):
            if receptacle not in self._opened:
                return f"The {name} is closed."
            return f"The {name} is open. In it, you see {self._listing(sorted(self._inside[receptacle]))}."
        return f"On the {name}, you see {self._listing(sorted(self._inside[receptacle]))}."

    def _listing(self, things: Iterable[int]) -> str:
        return _join([f"a {self.house.names[thing]}" for thing in things]) or "nothing"

    def _here(self) -> tuple[int, ...]:
        return self.house.receptacles_at.get(self._place, ())

    def _is_here(self, number: int) -> bool:
        return self.house.place_of.get(number) == self._place

    def _is_accessible(self, receptacle: int) -> bool:
        return self._is_here(receptacle) and (receptacle in self._opened or receptacle not in self.house.having("openable"))

    def _can_take(self, thing: int, receptacle: int) -> bool:
        return (
            self._held is None
            and self._is_accessible(receptacle)
            and thing in self._inside[receptacle]
            and thing in self.house.having("pickupable")
        )

    def _can_put(self, thing: int, receptacle: int) -> bool:
        types = self.house.types
        return (
            thing == self._held
            and self._is_accessible(receptacle)
            and types[thing] in self.house.can_contain.get(types[receptacle], ())
        )

    def _can_change(self, verb: str, thing: int, receptacle: int) -> bool:
        return (
            thing == self._held
            and self._is_here(receptacle)
            and self.house.types[receptacle] == _APPLIANCES[verb]
            and thing in self.house.having(f"{verb}able")
        )

    def _can_use(self, thing: int) -> bool:
        return thing in self.house.having("toggleable") and any(thing in self._inside[receptacle] for receptacle in self._here())

    def _can_slice(self, thing: int, knife: int) -> bool:
        return (
            knife == self._held
            and self.house.types[knife] in _KNIVES
            and thing in self.house.having("sliceable")
            and thing in self._objects_at.get(self._place, ())
        )

    def _admissible(self) -> Iterator[str]:
        names, here, held = self.house.names, self._here(), self._held
        yield from ("look", "inventory", "help")
        yield from (f"go to {names[receptacle]}" for receptacle, place in self.house.place_of.items() if place != self._place)
        for receptacle in here:
            name = names[receptacle]
            yield f"examine {name}"
            if receptacle in self.house.having("openable"):
                yield f"{'close' if receptacle in self._opened else 'open'} {name}"
            for thing in self._inside[receptacle]:
                if self._can_take(thing, receptacle):
                    yield f"take {names[thing]} from {name}"
                if self._can_use(thing):
                    yield f"use {names[thing]}"
            if held is not None:
                if self._can_put(held, receptacle):
                    yield f"move {names[held]} to {name}"
                yield from (f"{verb} {names[held]} with {name}" for verb in _APPLIANCES if self._can_change(verb, held, receptacle))
        if held is not None:
            yield f"examine {names[held]}"
            for thing in self._objects_at.get(self._place, ()):
                if self._can_slice(thing, held):
                    yield f"slice {names[thing]} with {names[held]}"


def _temperature(hot: bool, cool: bool, clean: bool) -> str:
    felt = "hot" if hot else "cool" if cool else ""
    return " and ".join(word for word in (felt, "clean" if clean else "") if word)


def _join(words: list[str]) -> str:
    return f"{', '.join(words[:-1])}, and {words[-1]}" if len(words) > 1 else "".join(words)
