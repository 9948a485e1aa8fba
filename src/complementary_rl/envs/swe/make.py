"""Make tasks of real packages: fetch them with their own tests, put seeded bugs in, keep those that some tests notice.

``python -m complementary_rl.envs.swe.make --output swe-tasks`` makes those of the recipe in this folder.
"""

import functools
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from complementary_rl.envs.swe.bubblewrap import Bubblewrap, require_bubblewrap
from complementary_rl.envs.swe.grading import TestResult, passed, run_tests
from complementary_rl.envs.swe.issues import write_issue
from complementary_rl.envs.swe.mutations import Mutation, mutations, unified
from complementary_rl.envs.swe.recipe import RECIPE, Ingredient, drawn_recipe, read_recipe
from complementary_rl.envs.swe.sandbox import Limits
from complementary_rl.envs.swe.tasks import SweTask, is_test, lay_out, write_task
from complementary_rl.errors import UserError
from complementary_rl.seeds import derive_seed, rng
from complementary_rl.types import Split

# What the tests of the packages named in the documentation need, all of it pure Python.
_TOOLS = ("pytest>=8,<10", "freezegun", "pytz")
_PYTEST = '#!/bin/sh\nexec python -m pytest "$@"\n'
_NOT_SOURCE = {"doc", "docs", "examples", "benchmarks", "bench", "scripts", "tools", "setup.py", "noxfile.py", "tasks.py", "misc"}
# A bug that half of the tests notice is found at once, and no test notices many.
_MOST_FAILING = 0.25
_TRIES = 8


@dataclass(frozen=True, slots=True)
class Package:
    """A repository in `data` whose tests run. `tests` are files, `passing` the names of tests that pass whenever these are run."""

    data: Path
    repository: str
    source: tuple[str, ...]
    tests: tuple[str, ...]
    passing: frozenset[str]
    limits: Limits

    def test(self, files: Iterable[str], task: SweTask | None = None) -> list[TestResult]:
        """Run the test files, with the bug of `task` or as it is."""
        bare = SweTask("", self.repository, "train", "", (), "", (), (), ())
        with Bubblewrap(self.data / "tools", self.limits) as sandbox:
            lay_out(task or bare, self.data, sandbox.repository, broken=task is not None)
            return run_tests(sandbox, files)


def main(
    output: Annotated[Path, typer.Option(help="The folder to write; its tasks are added to.")],
    packages: Annotated[
        list[str] | None, typer.Argument(help="Names on PyPI, such as inflection or toolz==1.2.0, or folders; without, a recipe's.")
    ] = None,
    recipe: Annotated[
        Path, typer.Option(help="Names packages, tasks of each, split and seed, where no PACKAGES are given.")
    ] = RECIPE,
    tasks: Annotated[int, typer.Option(min=1, help="Tasks of each of PACKAGES.")] = 10,
    heldout: Annotated[float, typer.Option(min=0, max=1, help="Share of PACKAGES that is held out.")] = 0.34,
    seed: Annotated[int, typer.Option(help="Draws the bugs of PACKAGES and their split.")] = 0,
    test_seconds: Annotated[int, typer.Option(min=1, help="Longest time for all tests of a package.")] = 60,
) -> None:
    """Put bugs into packages and write those that their tests notice as tasks of the suite swe.

    A package that cannot be used is told and passed over, and the exit status is 1.
    """
    chosen = drawn_recipe(packages, tasks, heldout, seed) if packages else read_recipe(recipe)
    require_bubblewrap()
    output.mkdir(parents=True, exist_ok=True)
    output = output.resolve()
    install_tools(output / "tools")
    faults = 0
    for one in chosen.packages:
        try:
            typer.echo(make_tasks(one, output, chosen.seed, test_seconds))
        except UserError as error:
            faults += 1
            typer.echo(f"error: {error}", err=True)
    sys.exit(faults > 0)


def make_tasks(one: Ingredient, output: Path, seed: int, test_seconds: int) -> str:
    """Write the tasks of one package; returns what to tell of them. Raises UserError where it cannot be used."""
    start = time.monotonic()
    ready = prepare(fetch(one.requirement, output), output, Limits(seconds=test_seconds))
    failing = []
    for task in bugs(ready, one.split, seed, one.tasks):
        write_task(task, output)
        failing.append(len(task.failing))
    return (
        f"{ready.repository} ({one.split}): {len(ready.passing)} tests pass, {len(failing)} tasks that {min(failing, default=0)} to "
        f"{max(failing, default=0)} of them notice, in {time.monotonic() - start:.0f} s"
    )


def install_tools(folder: Path) -> None:
    """pytest and what tests need, in a folder that sandboxes can read. Raises UserError where pip fails."""
    if (folder / "pytest").exists():
        return
    _pip("install", "--only-binary", ":all:", "--target", str(folder), *_TOOLS)
    (folder / "bin" / "pytest").write_text(_PYTEST)
    subprocess.run(["chmod", "-R", "a+rX", str(folder)], check=True)


def fetch(package: str, data: Path) -> str:
    """Get a package's source, with its tests, into ``data/repositories``; returns the name of its folder there.

    A folder is copied; else pip downloads the sdist and, as it always does, asks its build system for the metadata. Raises UserError.
    """
    repositories = data / "repositories"
    repositories.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=data) as temporary:
        unpacked = Path(temporary, "unpacked")
        if Path(package).is_dir():
            shutil.copytree(package, unpacked / Path(package).resolve().name, ignore=shutil.ignore_patterns(".git", "__pycache__"))
        else:
            # Of this package only: what its build system needs may come as wheels.
            name = re.split(r"[^\w.-]", package, maxsplit=1)[0]
            _pip("download", "--no-deps", "--no-binary", name, "--dest", temporary, package)
            [archive] = [path for path in Path(temporary).iterdir() if path.is_file()]
            with tarfile.open(archive) as packed:
                packed.extractall(unpacked, filter="data")
        [folder] = unpacked.iterdir()
        if not (repositories / folder.name).exists():
            folder.rename(repositories / folder.name)
        return folder.name


def prepare(repository: str, data: Path, limits: Limits) -> Package:
    """Find sources and tests, and run them. Raises UserError where nothing passes."""
    root = data / "repositories" / repository
    files = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.py") if path.is_file() and not path.is_symlink())
    tests = tuple(name for name in files if is_test(name) and re.fullmatch(r"test_.*\.py|.*_test\.py", name.rpartition("/")[2]))
    source = sorted({_top(name) for name in files if not is_test(name) and not _NOT_SOURCE & set(name.split("/"))})
    package = Package(data, repository, tuple(source), tests, frozenset(), limits)
    passing = passed(package.test(tests)) if tests and source else set()
    run: list[str] = []
    # What passes only sometimes, or only beside files that the judge does not run, must not judge anybody.
    while run != (run := _files_of(passing)):
        passing &= passed(package.test(run))
    if not passing:
        raise UserError(f"swe: no test of {repository} passes here ({len(tests)} test files); choose another package")
    return replace(package, tests=tuple(run), passing=frozenset(passing))


def bugs(package: Package, split: Split, seed: int, count: int) -> Iterator[SweTask]:
    """Up to `count` tasks in an order drawn by `seed`, none twice; each bug is noticed by some tests and not by many."""
    root = package.data / "repositories" / package.repository
    candidates: list[tuple[str, Mutation]] = []
    for name in _source_files(package, root):
        text = _text(root / name)
        candidates += [(name, one) for one in mutations(text)]
    order = rng("swe-bugs", seed, package.repository).permutation(len(candidates))
    made = 0
    for index in order[: _TRIES * count]:
        path, mutation = candidates[index]
        before = _text(root / path)
        task = _broken(package, split, path, before, mutation.apply(before))
        if task:
            yield task
            made += 1
        if made == count:
            return


def _broken(package: Package, split: Split, path: str, before: str, after: str) -> SweTask | None:
    diff = unified(path, before, after)
    name = f"{package.repository}-{derive_seed(diff) % 10**8:08}"
    task = SweTask(name, package.repository, split, "", package.source, diff, (), (), ())
    results = package.test(package.tests, task)
    still = passed(results) & package.passing
    failing = {result.name for result in results} & package.passing - still
    # A test that did not even run tells nothing: the bug broke an import, or never ends.
    if not failing or len(failing) > _MOST_FAILING * len(package.passing) or len(failing) + len(still) < len(package.passing):
        return None
    failures = [result for result in results if result.name in failing]
    hidden = tuple(_files_of(failing))
    # The judge runs these alone first, which some tests may not stand; all of them together are what `prepare` ran.
    if not failing <= _passing_alone(package, hidden):
        return None
    issue = write_issue(package.repository, failures)
    return replace(task, issue=issue, failing=tuple(sorted(failing)), passing=tuple(sorted(still)), hidden=hidden)


@functools.cache
def _passing_alone(package: Package, files: tuple[str, ...]) -> set[str]:
    return passed(package.test(files))


def _files_of(tests: Iterable[str]) -> list[str]:
    return sorted({name.partition("::")[0] for name in tests})


def _source_files(package: Package, root: Path) -> list[str]:
    found = [
        path for start in package.source for path in ([root / start] if start.endswith(".py") else (root / start).rglob("*.py"))
    ]
    names = sorted(path.relative_to(root).as_posix() for path in found if path.is_file())
    return [name for name in names if not is_test(name)]


def _top(name: str) -> str:
    """The package folder or module that a file belongs to."""
    parts = name.split("/")
    return "/".join(parts[: 2 if parts[0] == "src" else 1])


def _text(path: Path) -> str:
    with path.open(encoding="utf-8", newline="") as file:
        return file.read()


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"swe: pip {arguments[0]} {arguments[-1]} failed: {done.stderr.strip()[-500:]}")


if __name__ == "__main__":
    try:
        typer.run(main)
    except UserError as error:
        sys.exit(f"error: {error}")
