"""make_suite: names, modules, files and entry points; errors that name the remedy."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from helpers.suites import CountSuite

from complementary_rl.config import EnvConfig
from complementary_rl.envs import registry
from complementary_rl.envs.registry import make_suite, require_patience, suite_names
from complementary_rl.errors import ConfigError, UserError

MODULE = """
from complementary_rl.envs.protocol import Suite

class Tiny(Suite):
    name = "tiny"
    def __init__(self, size=3, *, colour="red"):
        self.size = size
    def tasks(self, split):
        return []
    def make_env(self):
        raise NotImplementedError

def small(size=1):
    return Tiny(size)

def number():
    return 3

def anything(**options):
    return Tiny(**options)

def strict(colour):
    return Tiny()

def typed(size: int = 3):
    return Tiny(size)

class Unfinished(Suite):
    def tasks(self, split):
        return []

ready = Tiny()
"""


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module in the working directory, which is not on the path of a console script."""
    (tmp_path / "tiny_module_for_tests.py").write_text(MODULE)
    (tmp_path / "broken_module_for_tests.py").write_text("import no_such_package_at_all")
    (tmp_path / "typo_module_for_tests.py").write_text("class Suite(:")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.delitem(sys.modules, "tiny_module_for_tests", raising=False)
    return "tiny_module_for_tests"


def size(suite: Any) -> int:
    return int(suite.size)


def test_names_are_listed_without_importing_what_they_need() -> None:
    assert "minihack/dark-rooms" in suite_names()
    assert suite_names() == sorted(suite_names())


def test_own_suites_by_module_and_by_file(tiny: str) -> None:
    assert size(make_suite(f"{tiny}:Tiny", size=5)) == 5
    assert size(make_suite(f"{tiny}:small")) == 1
    assert size(make_suite(f"{tiny}.py:Tiny")) == 3
    assert size(make_suite(f"{Path.cwd()}/{tiny}.py:anything", size=4)) == 4


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("minihack/dark-room", "did you mean 'minihack/dark-rooms'"),
        ("qqqq", "module:attribute"),
        ("{tiny}:Tinny", "has no 'Tinny'"),
        ("{tiny}:ready", "ready is a Tiny"),
        ("{tiny}:number", "gave a int"),
        ("{tiny}:Unfinished", "does not define make_env"),
        ("{tiny}:strict", "missing a required argument: 'colour'; give it in env.options"),
        ("typo_module_for_tests:Suite", "SyntaxError"),
        ("no_such_module_at_all:Suite", "cannot import no_such_module_at_all"),
        ("broken_module_for_tests:Suite", "no_such_package_at_all"),
        ("broken_module_for_tests.py:Suite", "no_such_package_at_all"),
        ("missing.py:Suite", "there is no file missing.py"),
    ],
)
def test_names_that_lead_nowhere(tiny: str, name: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        make_suite(name.format(tiny=tiny))
    assert words in str(caught.value)


@pytest.mark.parametrize(("option", "words"), [("siz", "did you mean 'size'"), ("qqqq", "it takes: size, colour")])
def test_unknown_options(tiny: str, option: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        make_suite(f"{tiny}:Tiny", **{option: 3})
    assert words in str(caught.value)


@pytest.mark.parametrize("value", ["many", 2.5, True])
def test_options_of_the_wrong_type(tiny: str, value: object) -> None:
    with pytest.raises(UserError, match="option 'size' must be int"):
        make_suite(f"{tiny}:typed", size=value)


def test_installed_packages_announce_their_suites(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("acme/count", "helpers.suites:CountSuite", registry.ENTRY_POINT_GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point] if group == registry.ENTRY_POINT_GROUP else [])
    assert "acme/count" in suite_names()
    assert isinstance(make_suite("acme/count"), CountSuite)


def test_minihack_without_its_packages_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("complementary_rl.envs.minihack.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "minihack.base", None)
    with pytest.raises(UserError, match=r"pip install 'complementary-rl\[minihack\]'"):
        make_suite("minihack/dark-rooms")


def test_a_limit_that_steps_may_break_by_rights_is_refused() -> None:
    suite = CountSuite()
    require_patience(suite, EnvConfig(step_timeout=0.1))
    suite.step_seconds = 140.0
    require_patience(suite, EnvConfig(step_timeout=141))
    with pytest.raises(ConfigError, match=r"env\.step_timeout is 30, but a step of \S+ may take 140 s"):
        require_patience(suite, EnvConfig())
