"""`crl bank import` of transcripts."""

import asyncio
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from complementary_rl.cli.bank import FILE
from complementary_rl.cli.errors import resumable
from complementary_rl.cli.output import say, warn
from complementary_rl.config import Config
from complementary_rl.config_file import load_config
from complementary_rl.configs import find_config
from complementary_rl.errors import InfrastructureError
from complementary_rl.training.from_transcripts import Filing, Import, distil_transcripts, look_through

DEFAULT_CONFIG = "quickstart"
PLAIN_LINES = 20
"""Lines of progress where there is no terminal …"""
PLAIN_SECONDS = 60.0
"""… or one after this long."""


def _config(run: Path, name: str | None, overrides: list[str]) -> Config:
    known = run / "config.toml"
    return load_config(known if name is None and known.exists() else find_config(name or DEFAULT_CONFIG), overrides)


def import_transcripts(run: Path, source: Path, config_name: str | None, overrides: list[str], *, scope: str, strict: bool) -> None:
    """Distil transcripts into the bank of `run`, showing progress. Exits with 1 when none could be distilled."""
    with resumable("what was distilled is kept, call it again to go on"):
        config = _config(run, config_name, overrides)
        filing = Filing(config)
        found = look_through(source, filing, scope=scope, strict=strict)
        if filing.unknown:
            warn(f"transcripts are filed as they say, since env.suite cannot be asked: {filing.unknown}")
        for line in found.refused:
            warn(f"refused {line}")
        try:
            with _Progress(found.readable) as progress:
                asyncio.run(distil_transcripts(source, run / FILE, config, filing, found, scope=scope, on_batch=progress.show))
        except (KeyboardInterrupt, InfrastructureError):
            _print_outcome(found, run / FILE)
            raise
    _print_outcome(found, run / FILE)
    if found.done == len(found.set_aside):
        raise typer.Exit(1)


def _print_outcome(found: Import, bank: Path) -> None:
    for item in found.set_aside:
        warn(f"set aside {item.episode_id}: {item.cause}")
    counts = found.counts
    rows: dict[str, Mapping[str, int]] = {
        "transcripts": {
            "readable": found.readable,
            "refused": len(found.refused),
            "distilled": counts["distilled"],
            "known already": found.known_already,
            "set aside": len(found.set_aside),
            "shortened": counts["shortened"],
            "of unknown outcome": found.unknown_outcomes,
        },
        "parts not read": found.unread_parts,
        "operations": {
            name.replace("_", " "): counts[name] for name in ("add", "update", "return", "unparsable", "dropped_operations")
        },
        "texts": {name: counts[name] for name in ("added", "duplicate")},
    }
    for name, numbers in rows.items():
        if numbers:
            say(f"{name:<15} {'  '.join(f'{what} {number}' for what, number in numbers.items())}")
    say(f"{'bank':<15} {found.entries} entries in {bank}")


class _Progress:
    """A bar in a terminal, plain lines anywhere else."""

    def __init__(self, total: int) -> None:
        console = Console(file=sys.stdout)
        self._total = total
        self._bar: Progress | None = None
        if console.is_terminal:
            columns = (TextColumn("distilled"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
            self._bar = Progress(*columns, TimeRemainingColumn(), console=console)
            self._task = self._bar.add_task("", total=total)
        self._last = (0, time.monotonic())

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, found: Import) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=found.done, description=f"bank {found.entries}")
            return
        done, when = self._last
        if found.done - done >= max(1, self._total // PLAIN_LINES) or time.monotonic() - when >= PLAIN_SECONDS:
            self._last = (found.done, time.monotonic())
            say(f"distilled {found.done}/{self._total}  bank {found.entries}")
