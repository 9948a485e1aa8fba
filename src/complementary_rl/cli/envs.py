"""`crl envs check`."""

import tomllib
from typing import Any

import typer

from complementary_rl.cli.errors import overrides_from
from complementary_rl.cli.output import say
from complementary_rl.envs.checker import check_env
from complementary_rl.envs.registry import make_suite


def check(name: str, arguments: list[str], episodes: int) -> None:
    """Print the report; exit 1 when the suite has problems."""
    report = check_env(make_suite(name, **suite_options(arguments)), episodes=episodes)
    say(str(report))
    if report.problems:
        raise typer.Exit(1)


def suite_options(arguments: list[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for pair in overrides_from(arguments):
        key, _, text = pair.partition("=")
        # An option of the suite that the command has too, such as seed, is given as --suite.seed.
        name = key.removeprefix("suite.").replace("-", "_")
        try:
            options[name] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            options[name] = text
    return options
