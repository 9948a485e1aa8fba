"""What an actor may say on a MiniHack level, and the keys that do it."""

import re

from complementary_rl.envs.minihack.compass import KEYS, STEPS
from complementary_rl.envs.minihack.game import Game
from complementary_rl.envs.wording import bare

_SPELLINGS = re.compile(r"\b(north|south)[ _]?(east|west)\b")
_APPLY = re.compile(r"(?:apply|use)(?: the)? key(?:(?: to the)? (\S+))?")
_PICK_UP = re.compile(r"pick ?up(?: (?:the )?key)?")
_STUCK_DOOR_TRIES = 10


def perform(game: Game, text: str, *, keys: bool) -> bool:
    """Do what `text` says; False, with nothing done, when it is no action. `keys` allows ``pick up`` and ``apply key``."""
    action = _SPELLINGS.sub(r"\1-\2", bare(text))
    if action in KEYS:
        game.press(KEYS[action])
    elif action == "search":
        game.press(ord("s"))
    elif keys and _PICK_UP.fullmatch(action):
        game.press(ord(","))
    elif keys and (match := _APPLY.fullmatch(action)) and match[1] in (*KEYS, None):
        _apply_key(game, match[1])
    else:
        return False
    game.dismiss()
    return True


def _apply_key(game: Game, direction: str | None) -> None:
    """Unlock the door in that direction (default: where a closed door is) and open it, as MiniHack's own ``apply`` does."""
    letter = next((letter for letter, item in game.inventory() if re.search(r"\bkey\b", item)), None)
    direction = direction or next((word for word in STEPS if _closed_door(game, word)), None)
    if letter is None:
        game.heard.append("You have no key.")
    elif direction is None:
        game.heard.append("There is no closed door next to you.")
    else:
        for key in (ord("a"), ord(letter), KEYS[direction], ord("y")):
            game.press(key)
            if not game.asks():
                break
            game.heard.pop()  # the question, which the next key answers
        game.dismiss()
        # Unlocked doors open by walking into them, which can fail a few times; diagonally it is impossible.
        straight = 0 in STEPS[direction]
        tries = _STUCK_DOOR_TRIES if straight and "unlocking the door" in " ".join(game.heard) else 0
        while tries and not game.over and _closed_door(game, direction):
            game.press(KEYS[direction])
            tries -= 1


def _closed_door(game: Game, direction: str) -> bool:
    (x, y), (dx, dy) = game.position, STEPS[direction]
    return game.describe(x + dx, y + dy) == "closed door"
