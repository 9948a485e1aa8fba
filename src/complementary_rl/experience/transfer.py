"""A bank as files that other programs read, and back, without loss: every row of every table.

`jsonl` and `parquet` know how rows look in a file. Here is what both need: one consistent view going out, a bank that is there whole
or not at all coming in, and the migrations an older export lacks.
"""

import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from complementary_rl.errors import BankError, InfrastructureError
from complementary_rl.experience import schema
from complementary_rl.experience.store import BankStore, create

NAME = "complementary-rl-bank"
"""What an export calls itself."""

_BAD_ROW = (
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    ValueError,
    TypeError,
    KeyError,
    OverflowError,
)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of an export. `place` tells people where it stands."""

    place: str
    table: str
    values: dict[str, Any]


class Format(Protocol):
    """How rows look in a file or folder."""

    def write(self, store: BankStore, path: Path) -> int:
        """Write every row to `path`, which does not exist; returns how many there were."""
        ...

    def read(self, source: Path) -> tuple[int, Iterator[Row]]:
        """The schema version of an export and its rows. Raises BankError, at the latest after the last row, for one that is not
        complete."""
        ...


def export_bank(store: BankStore, destination: Path, form: Format) -> int:
    """Write the bank to `destination`, replacing a file there in one step; returns the number of rows.

    Raises BankError where a folder is there already, or where none is to hold it; InfrastructureError where `destination` cannot be
    written.
    """
    if not destination.parent.is_dir():
        raise BankError(f"{destination.parent} is no folder that is there; make it first, or choose another place")
    if destination.is_dir():
        raise BankError(f"{destination} is a folder already; choose another place, or remove it")
    partial = destination.with_name(f".{destination.name}.partial")
    try:
        _remove(partial)
        with store.snapshot():
            written = form.write(store, partial)
        partial.replace(destination)
    except OSError as error:
        raise InfrastructureError(
            f"{destination} cannot be written ({error.strerror}); free the disk or choose another place"
        ) from error
    finally:
        _remove(partial)
    return written


def import_bank(source: Path, destination: Path, form: Format) -> int:
    """Make a new bank at `destination`, belonging to no run yet, from an export; returns the number of rows.

    Raises BankError, leaving no bank behind, when there is one already or `source` is not a complete export.
    """
    version, rows = form.read(source)
    if version > schema.VERSION:
        raise BankError(
            f"{source} was exported by a newer version of complementary-rl (bank schema {version}, this one reads up to "
            f"{schema.VERSION}); upgrade with `pip install -U complementary-rl`"
        )
    with create(destination, version) as store, store.transaction():
        count = _insert(store, rows)
        store.set_meta(run_id="")
    return count


def is_export(source: Path) -> bool:
    """Whether a file begins as an export begins, complete or not; of folders only Parquet is made. Raises BankError when it cannot be
    read."""
    if source.is_dir():
        return True
    try:
        with source.open("rb") as file:
            return NAME.encode() in file.readline(1000)
    except OSError as error:
        raise BankError(f"{source} cannot be read ({error.strerror}); give a file that is there and may be read") from error


def _insert(store: BankStore, rows: Iterator[Row]) -> int:
    columns = {table: set(kinds) for table, kinds in store.tables().items()}
    count = 0
    for row in rows:
        if set(row.values) != columns.get(row.table):
            raise BankError(f"{row.place}: no row of a bank; export the bank again")
        names, marks = ", ".join(row.values), ", ".join("?" * len(row.values))
        try:
            store.run(f"INSERT INTO {row.table} ({names}) VALUES ({marks})", list(row.values.values()))
        except _BAD_ROW as error:
            reason = "a number is too large" if isinstance(error, OverflowError) else error
            raise BankError(f"{row.place}: {reason}; export the bank again") from error
        count += 1
    return count


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
