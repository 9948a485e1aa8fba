"""`crl bank …`: look into a run's bank and its past, undo an operation, move it."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from complementary_rl.cli.errors import overrides_from, writing
from complementary_rl.cli.output import say
from complementary_rl.cli.train import run_config
from complementary_rl.config import Config
from complementary_rl.errors import UserError
from complementary_rl.experience.bank import Bank, LogRecord
from complementary_rl.experience.embedding import make_embedder
from complementary_rl.experience.transfer import is_export
from complementary_rl.readable import printable, shortened
from complementary_rl.types import Entry

FILE = "bank.sqlite"
LISTED_CHARACTERS = 300
"""Of a text in a list; `crl bank show` prints all of it."""


def show_entries(run: Path, limit: int, *, retired: bool, at_step: int | None) -> None:
    """A table of entries, most successes first, and the bank's counts; `at_step`: as they were at the end of that step."""
    if retired and at_step is not None:
        raise UserError("--at-step shows what was live then; leave --retired out")
    with _open(run) as bank:
        if at_step is not None and not 0 <= at_step <= bank.last_step:
            raise UserError(f"--at-step {at_step}: the bank has steps 0 to {bank.last_step}")
        entries = bank.entries(live_only=not retired) if at_step is None else bank.rebuild(at_step)
        entries.sort(key=lambda e: (-e.stats.successes, e.stats.failures, e.id))
        _print_table([(entry, None) for entry in entries[:limit]])
        counts = bank.counts() if at_step is None else {"size": len(entries), "at step": at_step}
    say("  ".join(f"{name} {value:g}" for name, value in counts.items()))


def show_entry(run: Path, entry_id: int) -> None:
    """Everything known of one entry."""
    with _open(run) as bank:
        entry = bank.entry(entry_id)
        writers = bank.writers(entry_id)
        routes = bank.routes(entry_id)
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
        "votes": stats.votes,
        "retrieved": f"{stats.retrieved}, last at step {stats.last_retrieved_step}",
        "trained": stats.trained,
    }.items():
        lines = str(value).split("\n")
        say(f"{name:<11} " + f"\n{'':<11} ".join(lines))
    for route in routes:
        say(
            f"{'elsewhere':<11} {route.scope}: {route.successes} of {route.rollouts} rollouts won, {route.expected:.1f} expected of "
            f"free ones{'; no longer offered there' if route.blocked else ''}"
        )


def search(run: Path, query: str, limit: int) -> None:
    """The entries nearest to a text, with their cosine."""
    with _open(run) as bank:
        _print_table(list(bank.search_text(query, limit)))


def show_history(run: Path, entry_id: int) -> None:
    """The operations on an entry and its relatives, oldest first."""
    with _open(run) as bank:
        bank.entry(entry_id)
        _print_log(bank.history(entry_id))


def show_log(run: Path, limit: int) -> None:
    """The newest operations, oldest first."""
    with _open(run) as bank:
        _print_log(bank.log(limit))


def revert(run: Path, operation_id: int) -> None:
    """Undo an operation at the bank's newest step, and tell what became of which entry."""
    with _open(run, read_only=False) as bank:
        done = bank.revert(operation_id, step=bank.last_step)
    say(f"reverted operation {operation_id} ({done.undone.kind}) by operation {done.operation_id}")
    for what, ids in {"live again": done.revived, "retired": done.retired, "evicted to make room": done.evicted}.items():
        if ids:
            say(f"{what}: {', '.join(map(str, ids))}")
    if (run / "checkpoints").exists():
        say(f"--resume takes the run back to its checkpoint; a new run with --bank.source {run / FILE} starts from this bank")


def export(run: Path, output: Path, form: str | None) -> None:
    """Write the bank as JSONL or Parquet; where `form` is None, as Parquet if `output` is called so."""
    if form not in (None, "jsonl", "parquet"):
        raise UserError(f"--format {form}: choose jsonl or parquet")
    form = form or output.suffix.removeprefix(".")
    with _open(run) as bank:
        written = bank.export_parquet(output) if form == "parquet" else bank.export_jsonl(output)
    say(f"exported {written} rows to {output}")


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
    say(f"imported {Bank.import_from(source, run / FILE)} rows into {run / FILE}")


def _open(run: Path, *, read_only: bool = True) -> Bank:
    path = run / FILE
    if not path.exists():
        raise UserError(f"{run} holds no {FILE}; give the directory of a run whose method keeps experience")
    config = run_config(run) if (run / "config.toml").exists() else Config()
    embedder = make_embedder(config.bank.embedder)
    return Bank.open(path, config.bank, embedder, run_id=None, read_only=read_only, make=False, retrieval=config.retrieval)


def _print_log(records: list[LogRecord]) -> None:
    for record in records:
        fate = "" if record.reverted_by is None else f"(reverted by {record.reverted_by}) "
        payload = json.dumps({name: _listed(value) for name, value in record.payload.items()}, ensure_ascii=False)
        say(f"operation {record.id:>6}  step {record.step:>5}  {record.kind:<7} {fate}{payload}")


def _print_table(rows: list[tuple[Entry, float | None]]) -> None:
    table = Table("id", "text", "about", "won", "lost", "shown", "step", *(["cosine"] if rows and rows[0][1] is not None else []))
    for entry, similarity in rows:
        stats = entry.stats
        numbers = [stats.successes, stats.failures, stats.shown, entry.created_step]
        texts = [Text(printable(_listed(text))) for text in (entry.text, entry.key_text)]
        cells: list[str | Text] = [str(entry.id), *texts, *map(str, numbers)]
        table.add_row(*cells, *([] if similarity is None else [f"{similarity:.2f}"]))
    Console().print(table)


def _listed(value: Any) -> Any:
    return shortened(value, LISTED_CHARACTERS) if isinstance(value, str) else value
