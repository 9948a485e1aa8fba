"""An exported bank as JSON lines: a header, a line per row, and a line that says how many there were. Blobs are base64."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from complementary_rl.errors import BankError
from complementary_rl.experience import json_line, schema
from complementary_rl.experience.store import BankStore
from complementary_rl.experience.transfer import NAME, Row


def write(store: BankStore, path: Path) -> int:
    """See `transfer.Format`."""
    written = 0
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps({"format": NAME, "schema": schema.VERSION}) + "\n")
        for table, columns in store.tables().items():
            for row in store.stream(f"SELECT * FROM {table}"):
                record = {name: _encode(value) for name, value in zip(columns, row, strict=True)}
                file.write(json.dumps({"table": table, "row": record}, ensure_ascii=False) + "\n")
                written += 1
        file.write(json.dumps({"rows": written}) + "\n")
    return written


def read(source: Path) -> tuple[int, Iterator[Row]]:
    """See `transfer.Format`."""
    lines = _lines(source)
    _, header = next(lines, (1, None))
    version = header.get("schema") if isinstance(header, dict) and header.get("format") == NAME else None
    if not isinstance(version, int) or version < 1:
        raise BankError(f"{source} is not an exported bank; make one with `crl bank export`")
    return version, _rows(source, lines)


def _rows(source: Path, lines: Iterator[tuple[int, Any]]) -> Iterator[Row]:
    read = 0
    for number, record in lines:
        place = f"{source}, line {number}"
        if isinstance(record, dict) and set(record) == {"rows"}:
            if record["rows"] != read:
                raise BankError(f"{source} should hold {record['rows']} rows and holds {read}; export the bank again")
            _check_end(source, lines)
            return
        match record:
            case {"table": str(table), "row": dict(row)}:
                yield Row(place, table, {name: _decode(value, place) for name, value in row.items()})
            case _:
                raise BankError(f"{place}: no row of a bank; export the bank again")
        read += 1
    raise BankError(f"{source} ends early, after {read} rows; export the bank again")


def _check_end(source: Path, lines: Iterator[tuple[int, Any]]) -> None:
    for number, record in lines:
        what = "another export begins" if isinstance(record, dict) and record.get("format") == NAME else "something else follows"
        raise BankError(
            f"{source}, line {number}: {what} after the end of the export; give a file that holds one export and no more"
        )


def _lines(source: Path) -> Iterator[tuple[int, Any]]:
    """Numbers and values of the lines that are not blank."""
    try:
        with source.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    yield number, json_line.parse(line)
                except json_line.NotJson as error:
                    raise BankError(f"{source}, line {number}: {error}; export the bank again") from error
    except OSError as error:
        raise BankError(f"{source} cannot be read ({error.strerror}); give a file written by `crl bank export`") from error


def _encode(value: Any) -> Any:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _decode(value: Any, place: str) -> Any:
    if not isinstance(value, dict):
        return value
    try:
        return base64.b64decode(value["base64"], validate=True)
    except (KeyError, TypeError, ValueError) as error:
        raise BankError(f"{place}: not base64 ({error}); export the bank again") from error
