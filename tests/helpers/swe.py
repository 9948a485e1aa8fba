"""What tests of the SWE suite share: whether sandboxes work here, and a tiny package with tests and a bug."""

import functools
import shutil
from importlib.metadata import files
from pathlib import Path

import pytest

from complementary_rl.envs.swe.bubblewrap import require_bubblewrap
from complementary_rl.envs.swe.mutations import unified
from complementary_rl.envs.swe.tasks import SweTask, write_task
from complementary_rl.errors import UserError


@functools.cache
def _why_not() -> str:
    try:
        require_bubblewrap()
    except UserError as error:
        return str(error)
    return ""


needs_sandbox = pytest.mark.skipif(bool(_why_not()), reason=_why_not() or "sandboxes work here")
"""Skips, with the reason, where bubblewrap cannot run. Continuous integration installs no system packages, so it may skip there."""


PACKAGE = {
    "tiny/__init__.py": "from tiny.words import plural\n",
    "tiny/words.py": '''\
"""Words."""


def plural(word, count):
    # One is no plural.
    if count == 1:
        return word
    return word + "s"


def longest(words, least=2):
    found = [word for word in words if len(word) > least]
    return max(found, key=len) if found else None
''',
    "tests/__init__.py": """\
class Inherited:
    def test_inherited(self):
        pass
""",
    "tests/test_plural.py": """\
import pytest

from tests import Inherited
from tiny import plural


class TestPlural(Inherited):
    pass


@pytest.mark.parametrize(("count", "word"), [(0, "cats"), (1, "cat"), (2, "cats")])
def test_plural(count, word):
    assert plural("cat", count) == word
""",
    "tests/test_longest.py": """\
from tiny.words import longest


class TestLongest:
    def test_longest(self):
        assert longest(["ab", "abc", "abcd"]) == "abcd"

    def test_none(self):
        assert longest(["ab", "b"]) is None

    def test_some(self):
        assert longest(["abc", "b"]) == "abc"

    def test_default(self):
        assert longest([]) is None

    def test_least(self):
        assert longest(["abc"], 4) is None
""",
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--no-such-option'\n",
}

BROKEN = PACKAGE["tiny/words.py"].replace("> least", ">= least")


PATIENT = 100
"""Seconds for what takes one on a quiet machine."""


def install_pytest(folder: Path) -> None:
    """Tools for a sandbox, copied from where the tests run."""
    for name in ("pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        for file in files(name) or []:
            # Bytecode too, which is valid for a source of the same time: to compile pytest takes longer than to run it.
            if file.suffix in (".py", ".pyc") and ".." not in file.parts and Path(file.locate()).exists():
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(str(file.locate()), folder / file)


def write(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def tiny_data(folder: Path) -> Path:
    """Tools, the repository above, and the same bug as a training and a held-out task."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    install_pytest(folder / "tools")
    write(folder / "repositories" / "tiny", PACKAGE)
    test = "tests/test_longest.py::TestLongest::test_"
    passing = [test + name for name in ("longest", "some", "default", "least")]
    passing += [
        f"tests/test_plural.py::{name}" for name in ("TestPlural::test_inherited", "test_plural[0-cats]", "test_plural[1-cat]")
    ]
    for name, split in (("one", "train"), ("two", "heldout")):
        diff = unified("tiny/words.py", PACKAGE["tiny/words.py"], BROKEN)
        issue = f"test_none fails ({name})\n\nIt returns a word."
        failing, hidden = (f"{test}none",), ("tests/test_longest.py",)
        write_task(SweTask(name, "tiny", split, issue, ("tiny",), diff, failing, tuple(passing), hidden), folder)
    return folder
