"""NetHack's commands in words, for levels that need more than walking: "zap wand north", "put on f", "open east"."""

import re
from collections.abc import Iterable

from nle.nethack import Command

from complementary_rl.envs.minihack.actions import perform
from complementary_rl.envs.minihack.compass import KEYS
from complementary_rl.envs.minihack.game import Game
from complementary_rl.envs.wording import bare

# words → (NetHack's command, what follows the words)
_COMMANDS: dict[str, tuple[Command, str]] = {
    "search": (Command.SEARCH, ""),
    "pick up": (Command.PICKUP, ""),
    "open": (Command.OPEN, "DIRECTION"),
    "close": (Command.CLOSE, "DIRECTION"),
    "kick": (Command.KICK, "DIRECTION"),
    "force": (Command.FORCE, ""),
    "eat": (Command.EAT, "ITEM"),
    "quaff": (Command.QUAFF, "ITEM"),
    "read": (Command.READ, "ITEM"),
    "wear": (Command.WEAR, "ITEM"),
    "take off": (Command.TAKEOFF, "ITEM"),
    "put on": (Command.PUTON, "ITEM"),
    "remove": (Command.REMOVE, "ITEM"),
    "wield": (Command.WIELD, "ITEM"),
    "drop": (Command.DROP, "ITEM"),
    "apply": (Command.APPLY, "ITEM DIRECTION"),
    "zap": (Command.ZAP, "ITEM DIRECTION"),
    "throw": (Command.THROW, "ITEM DIRECTION"),
    "fire": (Command.FIRE, "DIRECTION"),
    "pray": (Command.PRAY, ""),
}
_DIRECTIONS = KEYS | {"down": ord(">"), "up": ord("<"), "self": ord(".")}
_FILLERS = re.compile(r"\b(?:the|an|at|to|towards|in|into|my|direction)\b")
_ANSWERS = 6


class Commands:
    """The words for those of NetHack's commands whose keys are among `keys`, beside the eight steps."""

    def __init__(self, keys: Iterable[int]) -> None:
        allowed = {int(key) for key in keys}
        self._commands = {words: of for words, of in _COMMANDS.items() if int(of[0]) in allowed}

    @property
    def forms(self) -> list[str]:
        """How each is worded, such as ``zap ITEM DIRECTION``."""
        return [f"{words} {rest}".strip() for words, (_, rest) in self._commands.items()]

    def examples(self, game: Game) -> list[str]:
        """Actions that make sense in `game`: each form with every item carried, and with every direction."""
        items = [letter for letter, _ in game.inventory()]
        fill = {
            "": [""],
            "DIRECTION": list(KEYS),
            "ITEM": items,
            "ITEM DIRECTION": [f"{item} {word}" for item in items for word in KEYS],
        }
        return [*KEYS, *(f"{words} {rest}".strip() for words, (_, form) in self._commands.items() for rest in fill[form])]

    def perform(self, game: Game, text: str) -> bool:
        """Do what `text` says; False, with nothing done, when it is no action here.

        Questions of the game are answered from the words after the command, and those to be answered yes or no with yes. One that the
        words do not answer is left, and stands among the messages.
        """
        action = bare(text)
        words = next((words for words in self._commands if action == words or action.startswith(f"{words} ")), None)
        if words is None:
            return action in KEYS and perform(game, text, keys=False)
        *item, last = ["", *_FILLERS.sub(" ", action.removeprefix(words)).split()]
        direction = _DIRECTIONS.get(last)
        if direction is None:
            item.append(last)
        letter = _letter(game, " ".join(item).strip())
        game.press(int(self._commands[words][0]))
        for _ in range(_ANSWERS):
            answer = _answer(game.heard[-1] if game.heard else "", letter, direction) if game.asks() else None
            if answer is None:
                break
            game.heard.pop()
            game.press(answer)
        game.dismiss()
        return True


def _letter(game: Game, item: str) -> int | None:
    """The key of an item that is carried, given by its letter or by words of its name."""
    carried = game.inventory()
    letters = [letter for letter, name in carried if item and (item == letter.lower() or item in name.lower())]
    exact = [letter for letter in letters if item == letter.lower()]
    return ord((exact or letters)[0]) if letters else None


def _answer(question: str, letter: int | None, direction: int | None) -> int | None:
    if "direction" in question:
        return direction
    if "[yn" in question:
        # "There is an apple here; eat it?" is not about what is carried.
        return ord("n") if letter is not None and question.startswith("There ") else ord("y")
    return letter
