"""Suites by name: built-in names, names other packages announce, and `module:attribute` of your own.

Nothing is imported before it is asked for, so that listing names is quick and a missing extra matters only to who uses it.
"""

import difflib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from complementary_rl.config import EnvConfig
from complementary_rl.envs.crew import what_was_raised
from complementary_rl.envs.minihack.levels import LEVELS
from complementary_rl.envs.protocol import Part, Suite
from complementary_rl.errors import ConfigError, UserError
from complementary_rl.types import Split, Task

ENTRY_POINT_GROUP = "complementary_rl.suites"

_MINIHACK = "minihack/"

# name → (module, attribute, leading arguments)
_BUILT_IN: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "alfworld": ("complementary_rl.envs.alfworld.suite", "Alfworld", ()),
    "frozen-lake": ("complementary_rl.envs.frozen_lake.suite", "FrozenLake", ()),
    "gem": ("complementary_rl.envs.adapters.gem", "Gem", ()),
    "gymnasium": ("complementary_rl.envs.adapters.gymnasium", "FromGymnasium", ()),
    "mixture": ("complementary_rl.envs.mixture", "Mixture", ()),
    "openenv": ("complementary_rl.envs.adapters.openenv", "OpenEnv", ()),
    "sokoban": ("complementary_rl.envs.sokoban.suite", "Sokoban", ()),
    "swe": ("complementary_rl.envs.swe.suite", "Swe", ()),
    "swe-bench": ("complementary_rl.envs.swe.swe_bench", "SweBench", ()),
    "textarena": ("complementary_rl.envs.adapters.textarena", "TextArena", ()),
    "verifiers": ("complementary_rl.envs.adapters.verifiers", "FromVerifiers", ()),
    "minihack/dark-rooms": ("complementary_rl.envs.minihack.dark_rooms", "DarkRooms", ()),
    "webshop": ("complementary_rl.envs.webshop.suite", "WebShop", ()),
    **{f"minihack/{level}": ("complementary_rl.envs.minihack.suite", "MiniHackLevels", (level,)) for level in LEVELS},
}


class UnknownOption(UserError):
    """A suite does not take an option of this name."""


def suite_names() -> list[str]:
    """All registered names, sorted: the built-in ones and those of installed packages' ``complementary_rl.suites`` entry points."""
    return sorted({*_BUILT_IN, *_announced()})


def make_suite(name: str, **options: Any) -> Suite:
    """Make a suite from a registered name, ``module:attribute`` or ``path/to/file.py:attribute``.

    The attribute is a `Suite` subclass or a function that returns a suite; `options` are its keyword arguments. Raises UserError
    when the name is unknown (with the nearest one), cannot be imported, does not take the options, or raises.
    """
    maker = _find(name)
    _check_options(name, maker, options)
    with _own_errors(name, "making it"):
        suite = maker(**options)
    if not isinstance(suite, Suite):
        raise UserError(f"suite {name!r} gave a {type(suite).__name__}, not a complementary_rl.envs.protocol.Suite")
    return suite


def configured_suite(config: EnvConfig) -> Suite:
    """The suite that a configuration names. Raises UserError as `make_suite` does."""
    try:
        return make_suite(config.suite, **config.options)
    except UnknownOption as error:
        raise UserError(f"{error}; --env.options '{{}}' leaves out all that the configuration gives") from error


def require_patience(suite: Suite, config: EnvConfig) -> None:
    """Raise ConfigError where the limit on a step is one that the suite's steps may break by rights."""
    if config.step_timeout <= suite.step_seconds:
        raise ConfigError(
            f"env.step_timeout is {config.step_timeout:g}, but a step of {suite.name} may take {suite.step_seconds:g} s; "
            f"give more than that, or options that make it less"
        )


def tasks_of(suite: Suite, split: Split) -> list[Task]:
    """All tasks of a split. Raises UserError when the suite raises."""
    with _own_errors(getattr(suite, "name", type(suite).__name__), f"tasks({split!r})"):
        return list(suite.tasks(split))


def parts_of(suite: Suite, split: Split) -> list[Part]:
    """The parts of a split. Raises UserError when the suite raises."""
    with _own_errors(getattr(suite, "name", type(suite).__name__), f"tasks({split!r})"):
        return list(suite.parts(split))


def _find(name: str) -> Callable[..., Any]:
    if name in _BUILT_IN:
        module, attribute, arguments = _BUILT_IN[name]
        return partial(_attribute(name, module, attribute), *arguments)
    if name in (announced := _announced()):
        return _attribute(name, announced[name].module, announced[name].attr)
    module, colon, attribute = name.rpartition(":")
    if colon:
        return _attribute(name, module, attribute)
    if name.startswith(_MINIHACK):
        # Any other level that MiniHack registers with Gymnasium; which these are only MiniHack knows. An unknown one is told before
        # its options are looked at.
        module, level = "complementary_rl.envs.minihack.registered", name.removeprefix(_MINIHACK)
        _attribute(name, module, "check_level")(level)
        return partial(_attribute(name, module, "MiniHackRegistered"), level)
    near = difflib.get_close_matches(name, suite_names(), n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else f"the names are: {', '.join(suite_names())}."
    raise UserError(f"unknown suite {name!r}: {hint} Your own is given as module:attribute or path/to/file.py:attribute")


def _announced() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def _attribute(name: str, module_name: str, attribute: str) -> Callable[..., Any]:
    module = _load_file(name, Path(module_name)) if module_name.endswith(".py") else _import(name, module_name)
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise UserError(f"suite {name!r}: {module_name} has no {attribute!r}")
    if not callable(found):
        raise UserError(
            f"suite {name!r}: {attribute} is a {type(found).__name__}; give a Suite subclass or a function that returns a suite"
        )
    if inspect.isabstract(found):
        raise UserError(f"suite {name!r}: {attribute} does not define {', '.join(sorted(found.__abstractmethods__))}")
    maker: Callable[..., Any] = found
    return maker


def _import(name: str, module_name: str) -> ModuleType:
    # A console script does not have the working directory on its path, but that is where people keep their environment.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    with _import_errors(name, module_name):
        return importlib.import_module(module_name)


def _load_file(name: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise UserError(f"suite {name!r}: there is no file {path}")
    module_name = f"crl_suite_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickling look a class's module up by name.
    sys.modules[module_name] = module
    with _import_errors(name, str(path)):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _import_errors(name: str, what: str) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"suite {name!r}: cannot import {what}: {type(error).__name__}: {error}") from error


@contextmanager
def _own_errors(name: str, what: str) -> Iterator[None]:
    """Around a call of a suite: what it raises becomes a UserError that tells where it happened."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise UserError(
            f"suite {name!r}: {what} raised {what_was_raised(error)} ({where.filename}, line {where.lineno}); mend the suite, then try "
            "`crl envs check`"
        ) from error


def _check_options(name: str, maker: Callable[..., Any], options: dict[str, Any]) -> None:
    signature = inspect.signature(maker)
    parameters = signature.parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        for option in options:
            if option not in parameters:
                near = difflib.get_close_matches(option, parameters, n=1, cutoff=0.4)
                hint = f"did you mean {near[0]!r}?" if near else f"it takes: {', '.join(parameters) or 'no options'}"
                raise UnknownOption(f"suite {name!r} has no option {option!r}: {hint}")
    for option, value in options.items():
        wanted = parameters[option].annotation if option in parameters else None
        if wanted in (int, str, bool) and type(value) is not wanted:
            raise UserError(f"suite {name!r}: option {option!r} must be {wanted.__name__}, not {value!r}")
    try:
        signature.bind(**options)
    except TypeError as error:
        raise UserError(f"suite {name!r}: {error}; give it in env.options") from error
