"""Tasks as files: a folder with ``repositories/NAME/`` (as they should be), ``tasks/ID.json`` (what was broken) and ``tools/``.

``python -m complementary_rl.envs.swe.make`` writes such a folder.
"""

import json
import re
import shutil
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, get_origin

from complementary_rl.errors import UserError
from complementary_rl.types import Split

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_TEST_FOLDERS = {"test", "tests", "testing"}
_TEST_FILE = re.compile(r"test_.*\.py|.*_test\.py|conftest\.py")


@dataclass(frozen=True, slots=True)
class SweTask:
    """A broken repository. Paths are relative to its root, with ``/``.

    `source` are the folders and files that may be mended; `diff` is the unified diff of one hunk that breaks it; `failing` tests must
    pass and `passing` ones still pass, both by the names of `grading.run_tests`; `hidden` are the test files that the actor does not see.
    """

    id: str
    repository: str
    split: Split
    issue: str
    source: tuple[str, ...]
    diff: str
    failing: tuple[str, ...]
    passing: tuple[str, ...]
    hidden: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """The one hunk of a diff: in `path`, from line `start` on (the first is 1), the lines `before` became `after`."""

    path: str
    start: int
    before: str
    after: str


def change_of(diff: str) -> Change:
    """Read a unified diff of one hunk. Raises ValueError for anything else."""
    lines = diff.splitlines(keepends=True)
    hunk = _HUNK.match(lines[2]) if len(lines) > 2 and lines[1].startswith("+++ ") else None
    if not hunk or any(line[0] not in " +-" for line in lines[3:]):
        raise ValueError("its diff is not a unified diff of one hunk")
    path = lines[1].removeprefix("+++ ").strip().removeprefix("b/")
    before = "".join(line[1:] for line in lines[3:] if line[0] in " -")
    after = "".join(line[1:] for line in lines[3:] if line[0] in " +")
    return Change(path, int(hunk[1]), before, after)


def is_test(path: str) -> bool:
    """Whether a file belongs to the tests, which nobody but the task's author may change."""
    *folders, name = path.split("/")
    return bool(_TEST_FOLDERS & set(folders) or _TEST_FILE.fullmatch(name))


def write_task(task: SweTask, data: Path) -> None:
    """Write it into the folder ``tasks`` of `data`."""
    (data / "tasks").mkdir(exist_ok=True)
    (data / "tasks" / f"{task.id}.json").write_text(json.dumps(asdict(task), indent=1, ensure_ascii=False))


def load(data: str) -> list[SweTask]:
    """All tasks of a folder, ordered by id. Raises UserError that names the file and what is wrong with it."""
    folder = Path(data).expanduser()
    files = sorted((folder / "tasks").glob("*.json"))
    if not files:
        raise UserError(
            f"swe: there are no tasks in {folder}; make some: python -m complementary_rl.envs.swe.make inflection iniconfig --output DIR"
        )
    return [_read(file, folder) for file in files]


def _read(file: Path, folder: Path) -> SweTask:
    try:
        row = json.loads(file.read_text())
        values: dict[str, Any] = {}
        for field in fields(SweTask):
            wanted, value = (list if get_origin(field.type) is tuple else str), row[field.name]
            if type(value) is not wanted:
                raise ValueError(f"its {field.name} is a {type(value).__name__}, not a {wanted.__name__}")
            values[field.name] = tuple(map(str, value)) if wanted is list else value
        task = SweTask(**values)
        if task.split not in ("train", "heldout"):
            raise ValueError(f"its split is {task.split!r}; it must be train or heldout")
        if not task.failing:
            raise ValueError("it has no failing tests")
        for path in (task.repository, change_of(task.diff).path, *task.source, *task.hidden):
            if path.startswith("/") or ".." in path.split("/"):
                raise ValueError(f"the path {path!r} leads out of the repository")
        broken_source(task, folder)
    except KeyError as error:
        raise UserError(f"swe: {file} is not a task: it has no {error}") from error
    except (OSError, TypeError, ValueError) as error:
        raise UserError(f"swe: {file} is not a task: {error}") from error
    return task


def broken_source(task: SweTask, data: Path) -> tuple[str, str]:
    """The path and the text of the file with the bug. Raises ValueError where the diff does not fit the repository."""
    change = change_of(task.diff)
    with (data / "repositories" / task.repository / change.path).open(encoding="utf-8", newline="") as file:
        lines = file.read().splitlines(keepends=True)
    before = change.before.splitlines(keepends=True)
    start = change.start - 1
    if lines[start : start + len(before)] != before:
        raise ValueError(f"its diff does not fit {change.path} of {task.repository}")
    return change.path, "".join([*lines[:start], change.after, *lines[start + len(before) :]])


def lay_out(task: SweTask, data: Path, target: Path, *, broken: bool) -> None:
    """Copy the repository to `target`: broken and without the hidden tests, as the actor sees it, or as it should be.

    Raises UserError where it cannot be copied.
    """
    try:
        shutil.copytree(data / "repositories" / task.repository, target, symlinks=True, dirs_exist_ok=True)
        if broken:
            path, text = broken_source(task, data)
            (target / path).write_text(text, encoding="utf-8", newline="")
            for hidden in task.hidden:
                (target / hidden).unlink()
    except (OSError, ValueError) as error:
        raise UserError(
            f"swe: the repository of task {task.id} cannot be laid out from {data}: {error}; make the tasks anew"
        ) from error
