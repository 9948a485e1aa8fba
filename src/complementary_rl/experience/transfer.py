"""A bank as JSON lines and back, without loss: a header, every row of every table, and a line that says how many there were."""

import base64
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from complementary_rl.errors import BankError, InfrastructureError
from complementary_rl.experience import schema
from complementary_rl.experience.store import BankStore

_FORMAT = "complementary-rl-bank"
_BAD_ROW = (
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    ValueError,
    TypeError,
    KeyError,
    OverflowError,
)


def export_jsonl(store: BankStore, destination: Path) -> int:
    """Write the bank to `destination`, replacing it in one step; returns the number of rows. Token ids are base64 of int32."""
    partial = destination.with_name(f".{destination.name}.partial")
    try:
        written = _write(store, partial)
        partial.replace(destination)
    except OSError as error:
        raise InfrastructureError(
            f"{destination} cannot be written ({error.strerror}); free the disk or choose another place"
        ) from error
    return written


def _write(store: BankStore, path: Path) -> int:
    written = 0
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps({"format": _FORMAT, "schema": schema.VERSION}) + "\n")
        for table in schema.TABLES:
            columns = _columns(store, table)
            for row in store.stream(f"SELECT * FROM {table}"):
                record = {name: _encode(value) for name, value in zip(columns, row, strict=True)}
                file.write(json.dumps({"table": table, "row": record}, ensure_ascii=False) + "\n")
                written += 1
        file.write(json.dumps({"rows": written}) + "\n")
    return written


def import_jsonl(source: Path, destination: Path) -> int:
    """Make a new bank at `destination`, belonging to no run yet, from an export; returns the number of rows.

    Raises BankError, leaving no bank behind, when there is one already or `source` is not a complete export.
    """
    if destination.exists():
        raise BankError(f"{destination} exists already; import into a directory that has no bank")
    store = BankStore(destination, read_only=False)
    try:
        with store.transaction():
            rows = _read(store, source)
            store.set_meta(run_id="")
            return rows
    except BaseException:
        destination.unlink(missing_ok=True)
        raise
    finally:
        store.close()


def is_export(source: Path) -> bool:
    """Whether a file begins as `export_jsonl` begins one, complete or not. Raises BankError when it cannot be read."""
    try:
        with source.open("rb") as file:
            return _FORMAT.encode() in file.readline(1000)
    except OSError as error:
        raise BankError(f"{source} cannot be read ({error.strerror}); give a file that is there and may be read") from error


def _read(store: BankStore, source: Path) -> int:
    lines = _lines(source)
    _, header = next(lines, (1, None))
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        raise BankError(f"{source} is not an exported bank; make one with `crl bank export`")
    if header.get("schema") != schema.VERSION:
        raise BankError(
            f"{source} was exported with bank schema {header.get('schema')}, this version reads {schema.VERSION}; "
            "use the version of complementary-rl that wrote it"
        )
    columns = {table: _columns(store, table) for table in schema.TABLES}
    read = 0
    for number, record in lines:
        if not isinstance(record, dict):
            raise BankError(f"{source}, line {number}: no row of a bank; export the bank again")
        if set(record) == {"rows"}:
            if record["rows"] != read:
                raise BankError(f"{source} should hold {record['rows']} rows and holds {read}; export the bank again")
            return read
        table, row = record.get("table"), record.get("row")
        if table not in columns or not isinstance(row, dict) or set(row) != set(columns[table]):
            raise BankError(f"{source}, line {number}: no row of a bank; export the bank again")
        names = columns[table]
        marks = ", ".join("?" * len(names))
        try:
            store.run(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})", [_decode(row[name]) for name in names])
        except _BAD_ROW as error:
            raise BankError(f"{source}, line {number}: {error}; export the bank again") from error
        read += 1
    raise BankError(f"{source} ends early, after {read} rows; export the bank again")


def _lines(source: Path) -> Iterator[tuple[int, Any]]:
    try:
        with source.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                try:
                    yield number, json.loads(line)
                except ValueError as error:
                    raise BankError(f"{source}, line {number}: not JSON ({error}); export the bank again") from error
    except (OSError, UnicodeDecodeError) as error:
        raise BankError(f"{source} cannot be read ({error}); give a file written by `crl bank export`") from error


def _columns(store: BankStore, table: str) -> list[str]:
    return [str(row[1]) for row in store.rows(f"PRAGMA table_info({table})")]


def _encode(value: Any) -> Any:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _decode(value: Any) -> Any:
    return base64.b64decode(value["base64"], validate=True) if isinstance(value, dict) else value
