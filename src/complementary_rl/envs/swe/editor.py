"""The editor: a program that runs inside the sandbox, so that no path, link or ``..`` reaches further than a command does.

It reads one call as JSON from standard input and prints what the model is told; exit status 1 means that nothing was done.
"""

import json

# Only the standard library: the package is not in the sandbox. The model's own modules must not be imported in its place (-I).
COMMAND = (
    "python",
    "-I",
    "-c",
    r"""
import json, os, stat, sys

LARGEST = 1_000_000
AROUND = 4


def fail(text):
    print(text)
    sys.exit(1)


def read(path):
    if not os.path.exists(path):
        fail(f"There is no {path}.")
    if not stat.S_ISREG(os.stat(path).st_mode):
        fail(f"{path} is no file.")
    if os.path.getsize(path) > LARGEST:
        fail(f"{path} is larger than {LARGEST:,} bytes; look at parts of it with bash.")
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)


def show(lines, first, last):
    print("\n".join(f"{number:6}  {lines[number - 1]}" for number in range(first, last + 1)))


def listing(path):
    for folder, folders, files in os.walk(path):
        depth = os.path.relpath(folder, path).count(os.sep) + (folder != path)
        folders[:] = sorted(name for name in folders if name != "__pycache__" and not name.startswith("."))
        for name in sorted([name + "/" for name in folders] + files):
            print(os.path.normpath(os.path.join(folder, name)) + ("/" if name.endswith("/") else ""))
        if depth:
            folders.clear()


def view(path, first, last):
    if os.path.isdir(path):
        return listing(path)
    lines = read(path).splitlines()
    last = min(last or len(lines), len(lines))
    if not lines:
        print(f"{path} is empty.")
    elif not 1 <= first <= last:
        fail(f"{path} has lines 1 to {len(lines)}; there is no part from {first} to {last}.")
    else:
        show(lines, first, last)


def create(path, text):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    write(path, text)
    print(f"Wrote {path} ({len(text.splitlines())} lines).")


def replace(path, old, new):
    text = read(path)
    count = text.count(old)
    if count != 1:
        fail(f"The text to replace is {count} times in {path}; it must be there exactly once. Nothing was changed.")
    line = text[: text.index(old)].count("\n") + 1
    changed(path, text.replace(old, new), line, line + new.count("\n"))


def insert(path, line, text):
    lines = read(path).splitlines(keepends=True)
    if line > len(lines):
        fail(f"{path} has {len(lines)} lines; there is no line {line} to insert after.")
    if line and not lines[line - 1].endswith("\n"):
        lines[line - 1] += "\n"
    lines.insert(line, text)
    changed(path, "".join(lines), line + 1, line + text.count("\n"))


def changed(path, text, first, last):
    write(path, text)
    print(f"Changed {path}:")
    lines = text.splitlines()
    if lines:
        show(lines, max(1, first - AROUND), min(len(lines), last + AROUND))


call = json.load(sys.stdin)
try:
    {"view": view, "create": create, "str_replace": replace, "insert": insert}[call.pop("tool")](**call)
except UnicodeDecodeError:
    fail(f"{call['path']} is not UTF-8 text.")
except OSError as error:
    fail(f"{call['path']}: {error.strerror}.")
""",
)


def encoded(arguments: dict[str, str | int]) -> bytes:
    """The standard input for a call of the program."""
    return json.dumps(arguments).encode()
