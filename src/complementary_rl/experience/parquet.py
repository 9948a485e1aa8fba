"""An exported bank as a folder of Parquet files, one per table, for pandas, DuckDB and the like; `bank.json` tells what is there.

Types are those of the tables: int64, double, string, binary. Needs the extra `parquet`; pyarrow is imported when it is used.
"""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from complementary_rl.errors import BankError, UserError
from complementary_rl.experience import schema
from complementary_rl.experience.store import BankStore
from complementary_rl.experience.transfer import NAME, Row

_MANIFEST = "bank.json"
_BATCH = 4096
"""Rows held in memory at a time."""


def write(store: BankStore, path: Path) -> int:
    """See `transfer.Format`."""
    arrow, files = _pyarrow()
    types = {"INTEGER": arrow.int64(), "REAL": arrow.float64(), "TEXT": arrow.string(), "BLOB": arrow.binary()}
    counts: dict[str, int] = {}
    path.mkdir()
    for table, columns in store.tables().items():
        layout = arrow.schema([(name, types[kind]) for name, kind in columns.items()])
        rows = store.stream(f"SELECT * FROM {table}")
        counts[table] = 0
        with files.ParquetWriter(path / f"{table}.parquet", layout, compression="zstd") as writer:
            while batch := list(islice(rows, _BATCH)):
                writer.write_batch(arrow.record_batch([list(column) for column in zip(*batch, strict=True)], schema=layout))
                counts[table] += len(batch)
    manifest = {"format": NAME, "schema": schema.VERSION, "rows": counts}
    (path / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return sum(counts.values())


def read(source: Path) -> tuple[int, Iterator[Row]]:
    """See `transfer.Format`."""
    arrow, files = _pyarrow()
    try:
        manifest = json.loads((source / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BankError(f"{source} cannot be read ({error}); give a folder written by `crl bank export`") from error
    match manifest:
        case {"format": name, "schema": int(version), "rows": dict(counts)} if name == NAME and version > 0:
            return version, _rows(source, counts, arrow, files)
        case _:
            raise BankError(f"{source} is not an exported bank; make one with `crl bank export`")


def _rows(source: Path, counts: dict[str, Any], arrow: Any, files: Any) -> Iterator[Row]:
    for table, expected in counts.items():
        path = source / f"{table}.parquet"
        found = 0
        try:
            with files.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=_BATCH):
                    for values in batch.to_pylist():
                        found += 1
                        yield Row(f"{path}, row {found}", table, values)
        except (OSError, arrow.ArrowException) as error:
            raise BankError(f"{path} cannot be read ({error}); export the bank again") from error
        if found != expected:
            raise BankError(f"{path} should hold {expected} rows and holds {found}; export the bank again")


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UserError(
            "Parquet needs pyarrow: install the extra with `pip install 'complementary-rl[parquet]'`, or use JSONL"
        ) from error
    return pyarrow, pyarrow.parquet
