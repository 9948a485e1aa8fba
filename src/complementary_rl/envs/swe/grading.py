"""Run tests in a sandbox, and judge what the actor left by them.

Judged is a fresh copy of the repository in which only the source files are the actor's: its test files, ``conftest.py``, settings and
links never come along. A source file that manipulates the test runner from within, while it is imported, can still deceive it.
"""

import os
import shutil
import stat
import uuid
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from complementary_rl.envs.swe.bubblewrap import Bubblewrap
from complementary_rl.envs.swe.sandbox import Backend, Limits, Sandbox
from complementary_rl.envs.swe.tasks import SweTask, is_test, lay_out

_LARGEST_FILE = 1 << 20
_LONGEST_PATH = 1000


@dataclass(frozen=True, slots=True)
class TestResult:
    """`name` is ``file::Class::test[parameters]``, by the file that was run, even if it only inherits the test.

    `detail` is what pytest says of a failure.
    """

    __test__ = False  # for pytest, which would collect it

    name: str
    passed: bool
    detail: str = ""


def run_tests(sandbox: Sandbox, files: Iterable[str], options: Sequence[str] = ("-o", "addopts=")) -> list[TestResult]:
    """Run the test files (paths in the repository) by pytest, with `options` of it; by default the repository's own are set aside.

    Empty where it could not even report: a crash, a limit, an import error.
    """
    files = list(files)
    # The name cannot be guessed by what was written before.
    report = f"report-{uuid.uuid4().hex}.xml"
    ours = ["-q", "--tb=short", "-p", "no:cacheprovider", f"--rootdir={sandbox.seen}", f"--junit-xml=/tmp/{report}"]
    sandbox.run(["python", "-m", "pytest", *ours, *options, "--", *files])
    text = sandbox.read_tmp(report)
    modules = {file.removesuffix(".py").replace("/", "."): file for file in files}
    try:
        cases = ElementTree.fromstring(text).iter("testcase") if text else iter(())
        return [_result(case, modules) for case in cases]
    except ElementTree.ParseError:
        return []


def _result(case: "ElementTree.Element", modules: dict[str, str]) -> TestResult:
    inside = case.get("classname", "")
    module = max((name for name in modules if f"{inside}.".startswith(f"{name}.")), key=len, default="")
    classes = inside[len(module) :].strip(".")
    name = "::".join(filter(None, [modules.get(module, ""), classes, case.get("name")]))
    for child in case:
        if child.tag in ("failure", "error", "skipped"):
            return TestResult(name, passed=False, detail=child.text or "" if child.tag != "skipped" else "")
    return TestResult(name, passed=True)


def passed(results: Iterable[TestResult]) -> set[str]:
    """Names of tests that passed, in every run of them."""
    found = list(results)
    return {result.name for result in found if result.passed} - {result.name for result in found if not result.passed}


def solved(task: SweTask, data: Path, left: Path, limits: Limits, backend: Backend = Bubblewrap) -> bool:
    """Whether, with the sources in the repository `left`, all failing tests pass and all passing ones still do."""
    failing, all_tests = set(task.failing), {*task.failing, *task.passing}
    # Most episodes end here, and sooner.
    for wanted in (failing, all_tests):
        files = sorted({name.partition("::")[0] for name in wanted})
        with backend(data / "tools", limits) as sandbox:
            lay_out(task, data, sandbox.repository, broken=False)
            take_sources(task.source, left, sandbox.repository)
            if not wanted <= passed(run_tests(sandbox, files)):
                return False
    return True


def take_sources(source: Iterable[str], left: Path, target: Path) -> None:
    """Replace the source files in `target` by those in `left`: regular Python files that are no tests, and nothing else."""
    starts = list(source)
    _take(lambda root: _sources(starts, root), left, target)


def take_all(left: Path, target: Path) -> None:
    """Replace the regular files in `target` by those in `left`, but for git's own and large ones."""
    _take(
        lambda root: (name for name in map(Path.as_posix, _files(root, ".")) if _is_regular(root, name) and name[:5] != ".git/"),
        left,
        target,
    )


def _take(chosen: Callable[[Path], Iterable[str]], left: Path, target: Path) -> None:
    for path in list(chosen(target)):
        (target / path).unlink()
    whole = target.resolve()
    for path in chosen(left):
        try:
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            # A link that was in the repository before could lead anywhere.
            if (target / path).parent.resolve().is_relative_to(whole):
                shutil.copy(left / path, target / path, follow_symlinks=False)
        except OSError:
            continue  # Closed to us, or a folder is in its place: what cannot be read does not count.


def _sources(source: Iterable[str], root: Path) -> Iterator[str]:
    for start in source:
        if (root / start).resolve() != root.resolve() / start:
            continue  # A link on the way could lead anywhere on the host.
        found = [Path(start)] if (root / start).is_file() else _files(root, start)
        for path in found:
            name = path.as_posix()
            if name.endswith(".py") and not is_test(name) and _is_regular(root, name):
                yield name


def _is_regular(root: Path, name: str) -> bool:
    try:
        status = (root / name).lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size <= _LARGEST_FILE


def _files(root: Path, start: str) -> Iterator[Path]:
    # os.walk enters no links, passes over folders that it cannot read, and recurses, which a hostile depth must not exhaust.
    for folder, folders, files in os.walk(root / start):
        folders.sort()
        if len(folder) > _LONGEST_PATH:
            folders.clear()
        for name in sorted(files):
            yield Path(folder, name).relative_to(root)
