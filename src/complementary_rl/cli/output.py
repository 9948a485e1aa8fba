"""What the commands print. All of it goes through here: much comes from models, environments and files, and a terminal obeys."""

import typer

from complementary_rl.readable import printable


def say(text: str) -> None:
    """Print a result."""
    typer.echo(printable(text))


def warn(text: str, colour: str = "yellow") -> None:
    """Print to stderr, in colour where that is a terminal."""
    typer.secho(printable(text), err=True, fg=colour)
