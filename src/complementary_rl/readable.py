"""Foreign text (of models, environments, files) made fit for people to read."""

import unicodedata
from typing import Any


def printable(text: str, keep: str = "\n\t") -> str:
    """`text` with every character that a terminal would obey, or show as nothing, written as its escape: ESC becomes ``\\x1b``.

    That is whatever Unicode calls a control, a format (writing direction among them), a separator of lines, a surrogate, private or
    unassigned; those of `keep` and spaces of all widths stay.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep or unicodedata.category(c) == "Zs" else _escaped(c) for c in text)


def shortened(text: Any, limit: int) -> str:
    """`text`, cut off with a note of how much is missing."""
    whole = str(text)
    return whole if len(whole) <= limit else f"{whole[:limit]} … ({len(whole) - limit:,} more characters)"


def without_middle(text: str, start: int, end: int, left_out: str) -> str:
    """`text` without ``text[start:end]``, in whose place a mark says in square brackets that `left_out` ("12 turns") is left out."""
    return f"{text[:start]}[{left_out} left out]{text[end:]}"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
