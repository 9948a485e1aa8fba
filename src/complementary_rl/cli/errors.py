"""Known errors become one clear message and an exit code; anything else is a bug and keeps its traceback."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

import typer

from complementary_rl.cli.output import warn
from complementary_rl.errors import InfrastructureError, UserError

P = ParamSpec("P")
R = TypeVar("R")

USER_ERROR, INFRASTRUCTURE_ERROR, INTERRUPTED = 2, 3, 130


def friendly(command: Callable[P, R]) -> Callable[P, R]:
    """Print UserError (exit 2), InfrastructureError (exit 3) and an interrupt (exit 130) as a message, without a traceback."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except UserError as error:
            warn(f"error: {error}", "red")
            raise typer.Exit(USER_ERROR) from None
        except InfrastructureError as error:
            warn(f"stopped: {error}", "red")
            raise typer.Exit(INFRASTRUCTURE_ERROR) from None
        except KeyboardInterrupt:
            warn("interrupted")
            raise typer.Exit(INTERRUPTED) from None

    return wrapped


@contextmanager
def resumable(how: str) -> Iterator[None]:
    """Around what can be gone on with after an interrupt: says `how`."""
    try:
        yield
    except KeyboardInterrupt:
        warn(f"interrupted; {how}")
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Around what writes to a place that the user named: UserError where that place cannot be written."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}); choose another place, or free the disk") from error


def overrides_from(arguments: list[str]) -> list[str]:
    """``["--a.b", "1", "--c.d=2"]`` → ``["a.b=1", "c.d=2"]``. Raises UserError for anything that is not an option with a value."""
    pairs: list[str] = []
    position = 0
    while position < len(arguments):
        argument = arguments[position]
        name, equals, value = argument.removeprefix("--").partition("=")
        if not argument.startswith("--") or not name:
            raise UserError(f"unexpected argument {argument!r}; settings are given as --section.field value")
        if not equals:
            position += 1
            if position == len(arguments):
                raise UserError(f"--{name} needs a value")
            value = arguments[position]
        pairs.append(f"{name}={value}")
        position += 1
    return pairs
