"""`crl bank …`: look into a run's bank, move it."""

import json
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from complementary_rl.cli.errors import overrides_from, writing
from complementary_rl.cli.train import run_config
from complementary_rl.config import Config
from complementary_rl.errors import UserError
from complementary_rl.experience.bank import Bank
from complementary_rl.experience.embedding import make_embedder
from complementary_rl.experience.transfer import is_export
from complementary_rl.types import Entry

FILE = "bank.sqlite"


def show_entries(run: Path, limit: int, *, retired: bool) -> None:
    """A table of entries, most successes first, and the bank's counts."""
    with _open(run) as bank:
        entries = sorted(bank.entries(live_only=not retired), key=lambda e: (-e.stats.successes, e.stats.failures, e.id))
        _print_table([(entry, None) for entry in entries[:limit]])
        counts = bank.counts()
    typer.echo("  ".join(f"{name} {value:g}" for name, value in counts.items()))


def show_entry(run: Path, entry_id: int) -> None:
    """Everything known of one entry."""
    with _open(run) as bank:
        entry = bank.entry(entry_id)
        writers = bank.writers(entry_id)
    stats = entry.stats
    for name, value in {
        "entry": entry.id,
        "text": entry.text,
        "key": entry.key_text,
        "scope": entry.scope,
        "created": f"step {entry.created_step}",
        "retired": "live" if entry.retired_step is None else f"step {entry.retired_step}",
        "parents": ", ".join(map(str, entry.parents)) or "none",
        "written by": ", ".join(writers) or "nobody (imported)",
        "shown": f"{stats.shown} ({stats.successes} successes, {stats.failures} failures)",
        "retrieved": f"{stats.retrieved}, last at step {stats.last_retrieved_step}",
        "trained": stats.trained,
    }.items():
        typer.echo(f"{name:<11} {value}")


def search(run: Path, query: str, limit: int) -> None:
    """The entries nearest to a text, with their cosine."""
    with _open(run) as bank:
        _print_table(list(bank.search_text(query, limit)))


def show_history(run: Path, entry_id: int) -> None:
    """The operations on an entry and its relatives, oldest first."""
    with _open(run) as bank:
        bank.entry(entry_id)
        for record in bank.history(entry_id):
            typer.echo(f"step {record.step:>5}  {record.kind:<7} {json.dumps(record.payload, ensure_ascii=False)}")


def export(run: Path, output: Path) -> None:
    """Write the bank as JSONL."""
    with _open(run) as bank:
        typer.echo(f"exported {bank.export_jsonl(output)} rows to {output}")


def import_(
    run: Path, source: Path, config: str | None, extractor: str | None, arguments: list[str], *, scope: str, strict: bool
) -> None:
    """Make the bank of a run directory from an export or from transcripts, whichever `source` is."""
    overrides = overrides_from(arguments)
    if not is_export(source):
        from complementary_rl.cli.transcripts import import_transcripts

        model = [] if extractor is None else [f"extractor.model.path={extractor!r}"]
        import_transcripts(run, source, config, [*model, *overrides], scope=scope, strict=strict)
        return
    if overrides or config or extractor or strict:
        raise UserError(f"{source} is an exported bank, which comes back as it was; the options are for transcripts")
    with writing(run):
        run.mkdir(parents=True, exist_ok=True)
    typer.echo(f"imported {Bank.import_jsonl(source, run / FILE)} rows into {run / FILE}")


def _open(run: Path) -> Bank:
    path = run / FILE
    if not path.exists():
        raise UserError(f"{run} holds no {FILE}; give the directory of a run whose method keeps experience")
    config = run_config(run) if (run / "config.toml").exists() else Config()
    return Bank.open(path, config.bank, make_embedder(config.bank.embedder), run_id=None, read_only=True)


def _print_table(rows: list[tuple[Entry, float | None]]) -> None:
    table = Table("id", "text", "about", "won", "lost", "shown", "step", *(["cosine"] if rows and rows[0][1] is not None else []))
    for entry, similarity in rows:
        stats = entry.stats
        numbers = [stats.successes, stats.failures, stats.shown, entry.created_step]
        cells: list[str | Text] = [str(entry.id), Text(entry.text), Text(entry.key_text), *map(str, numbers)]
        table.add_row(*cells, *([] if similarity is None else [f"{similarity:.2f}"]))
    Console().print(table)
