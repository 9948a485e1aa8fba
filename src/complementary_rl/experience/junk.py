"""Texts that are worth nothing whatever the task, told by their form. Pure functions of text.

A refused text is lost, so whatever might help somebody passes: only what is worthless under any reading is junk. In this order:

`boilerplate`    every clause, once the openings and endings that `boilerplate.toml` lists are off, is one of its phrases; or there is
                 nothing but punctuation and the prompt's own tags. "Be careful, explore more." is; "be careful: lava in the east" is not.
`repetition`     up to twelve words, two of them different at least, come four times or more in a row and make up half of the text; or
                 hardly any sequences of characters in a long text are different. Moves may repeat: "north north north north".
`restates_task`  the words that carry meaning (are not `light` in that file) are those of the task's description, in its order, at least
                 nine tenths of them and no other. "the west one" chooses among what a description lists, and passes.
"""

import re
import tomllib
import unicodedata
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from complementary_rl.errors import ConfigError

Junk = Literal["boilerplate", "repetition", "restates_task"]

SHIPPED = Path(__file__).with_name("boilerplate.toml")

_TAG = re.compile(r"</?(?:note|task|action|observation)\b[^<>]{0,80}>", re.IGNORECASE)
_CLAUSE_END = re.compile(r"[.!?;:,\n…•–—(){}\[\]]+|\s-+\s|\band\b")
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_COUNTER = re.compile(r"\b\d+[.)]\s")
_LONGEST_UNIT, _TIMES = 12, 4
"""Most words of what is looked for in a row, and how often it must come."""
_GRAM, _LONG, _LEAST_DIFFERENT = 20, 100, 0.1
"""A text of `_LONG` characters repeats itself when less than this share of its sequences of `_GRAM` characters are different, the
numbers of a numbered list aside."""
_LEAST_COVERED = 0.9


class JunkFilter:
    """Judges texts by the phrases of a file (None: those that are shipped)."""

    def __init__(self, path: Path | None = None) -> None:
        """Raises ConfigError when the file cannot be read or lacks a list."""
        self._openings, self._endings, self._phrases, self._light = _load(path or SHIPPED)
        self._longest = max((len(known.split()) for known in self._openings | self._endings), default=0)

    def judge(self, text: str, key_text: str) -> Junk | None:
        """What kind of junk a text about the task `key_text` is; None for one to keep."""
        plain = _TAG.sub(" ", _plain(text))
        if self._is_boilerplate(plain):
            return "boilerplate"
        if _repeats_itself(plain):
            return "repetition"
        return "restates_task" if self._restates(plain, key_text) else None

    def _is_boilerplate(self, plain: str) -> bool:
        clauses = [words for clause in _CLAUSE_END.split(plain) if (words := _WORD.findall(clause))]
        if not clauses:
            return all(unicodedata.category(character)[0] in "PZC" or character == "`" for character in plain)
        return all(self._core(words) in self._phrases for words in clauses)

    def _core(self, words: Sequence[str]) -> str:
        """A clause without openings and endings; never without all of its words, and a phrase of the list stays whole."""
        rest = list(words)
        while " ".join(rest) not in self._phrases:
            most = min(self._longest, len(rest) - 1)
            opening = next((n for n in range(most, 0, -1) if " ".join(rest[:n]) in self._openings), 0)
            ending = next((n for n in range(most, 0, -1) if " ".join(rest[-n:]) in self._endings), 0)
            if not opening and not ending:
                break
            rest = rest[opening:] if opening else rest[:-ending]
        return " ".join(rest)

    def _restates(self, plain: str, key_text: str) -> bool:
        said, asked = self._meaning(plain), self._meaning(_plain(key_text))
        remaining = iter(asked)
        return bool(said) and len(said) >= _LEAST_COVERED * len(asked) and all(word in remaining for word in said)

    def _meaning(self, plain: str) -> list[str]:
        return [word for word in _WORD.findall(plain) if word not in self._light]


def _repeats_itself(plain: str) -> bool:
    words = _WORD.findall(plain)
    if any(_come_in_a_row(words, unit) for unit in range(2, min(_LONGEST_UNIT, len(words) // _TIMES) + 1)):
        return True
    if len(plain) < _LONG:
        return False
    alike = _COUNTER.sub("", plain)
    grams = len(alike) - _GRAM + 1
    return len({alike[i : i + _GRAM] for i in range(grams)}) < _LEAST_DIFFERENT * grams


def _come_in_a_row(words: Sequence[str], unit: int) -> bool:
    """Whether `unit` words, not all the same, come `_TIMES` times in a row and make up half of the text."""
    alike = 0
    for i in range(len(words) - unit):
        alike = alike + 1 if words[i] == words[i + unit] else 0
        run = alike + unit
        if run >= _TIMES * unit and 2 * run >= len(words) and len(set(words[i + 1 : i + 1 + unit])) > 1:
            return True
    return False


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold().replace("’", "'")


@cache
def _load(path: Path) -> list[frozenset[str]]:
    try:
        lists: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"bank.boilerplate: {path} cannot be read ({error}); start from a copy of {SHIPPED}") from error
    found = []
    for name in ("openings", "endings", "phrases", "light"):
        values = lists.get(name)
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise ConfigError(f"bank.boilerplate: {path} has no list of texts {name!r}; start from a copy of {SHIPPED}")
        found.append(frozenset(" ".join(_WORD.findall(_plain(value))) for value in values))
    return found
