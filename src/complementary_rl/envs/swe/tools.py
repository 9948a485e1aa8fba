"""The tools as a model writes them: a name and its arguments on the first line, texts on the lines below."""

import re
from dataclasses import dataclass
from typing import Literal

MANUAL = """\
bash COMMAND
    Run it in {repository}; it may go on over more lines. A directory changed into, and variables, are forgotten afterwards; files in \
{repository} and /tmp stay.
view PATH [FIRST LAST]
    Show a file with line numbers, or only some lines, or list a folder.
create PATH
TEXT
    Write the file, which may exist.
str_replace PATH
<<<<<<<
OLD TEXT
=======
NEW TEXT
>>>>>>>
    Replace what is in the file exactly once.
insert PATH LINE
TEXT
    Insert the text after that line; 0 is the beginning.
submit
    You are done: the tests are run, and the episode ends."""

LONGEST = 50_000

_FENCE = re.compile(r"```\w*\n(.*?)\n?```", re.DOTALL)
_OLD, _NEW, _END = "<<<<<<<", "=======", ">>>>>>>"
_USAGE = {
    "bash": "a command",
    "view": "a path, and perhaps the first and the last line",
    "create": "a path on its line and the text below",
    "str_replace": "a path on its line; below <<<<<<<, the old text, =======, the new text, >>>>>>> on lines of their own",
    "insert": "a path and a line number on its line and the text below",
    "submit": "nothing else",
}

Tool = Literal["bash", "edit", "submit"]


class NotACall(ValueError):
    """A text that is no call of a tool; the message is for the model."""


@dataclass(frozen=True, slots=True)
class Call:
    """`command` of bash, or the editor's `arguments`."""

    tool: Tool
    command: str = ""
    arguments: dict[str, str | int] | None = None


def parse(text: str) -> Call:
    """The call in a model's text, which may stand in a code fence. Raises NotACall, which says what is wrong."""
    if len(text) > LONGEST:
        raise NotACall(f"That is longer than {LONGEST:,} characters; nothing was done.")
    if "\0" in text:
        raise NotACall("That holds a NUL character; nothing was done.")
    text = text.encode(errors="replace").decode().strip()
    if fenced := _FENCE.fullmatch(text):
        text = fenced[1].strip()
    first, _, body = text.partition("\n")
    name, *words = first.split() or [""]
    if name not in _USAGE:
        raise NotACall(f"There is no tool {name[:40]!r}. Begin with one of: {', '.join(_USAGE)}.")
    call = _call(name, words, first.strip().removeprefix(name).strip(), body)
    if call is None:
        raise NotACall(f"{name} takes {_USAGE[name]}; nothing was done.")
    return call


def _call(name: str, words: list[str], rest: str, body: str) -> Call | None:
    match name, words:
        case "bash", _ if rest or body.strip():
            return Call("bash", command=f"{rest}\n{body}".strip("\n"))
        case "submit", [] if not body:
            return Call("submit")
        case "view", [path] if not body:
            return _edit(name, path, first=1, last=0)
        case "view", [path, first, last] if not body and _number(first) and _number(last):
            return _edit(name, path, first=int(first), last=int(last))
        case "create", [path]:
            return _edit(name, path, text=_lines(body))
        case "insert", [path, line] if body and _number(line):
            return _edit(name, path, line=int(line), text=_lines(body))
        case "str_replace", [path] if texts := _old_and_new(body):
            return _edit(name, path, old=texts[0], new=texts[1])
        case _:
            return None


def _edit(tool: str, path: str, **arguments: str | int) -> Call:
    return Call("edit", arguments={"tool": tool, "path": path, **arguments})


def _old_and_new(body: str) -> tuple[str, str] | None:
    lines = body.split("\n")
    if not lines[0].startswith(_OLD) or not lines[-1].startswith(_END) or _NEW not in lines:
        return None
    middle = lines.index(_NEW)
    old = "\n".join(lines[1:middle])
    return (old, "\n".join(lines[middle + 1 : -1])) if old else None


def _number(word: str) -> bool:
    return bool(re.fullmatch("[0-9]{1,7}", word))


def _lines(body: str) -> str:
    return body + "\n" if body else ""
