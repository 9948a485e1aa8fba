"""Reading metrics.jsonl: following one that another process writes, and taking numbers out of records that may lack them."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Tail:
    """Reads the records appended to a JSONL file since the last call; a line that is still being written is left for the next one.

    The file may not exist yet. When it became shorter (a run was resumed from a checkpoint) reading starts over: `restarts` counts that.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.restarts = 0
        self._offset = 0

    def read(self) -> list[dict[str, Any]]:
        """New records, oldest first. Lines that are not JSON objects are passed over."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            return []
        if size < self._offset:
            self._offset = 0
            self.restarts += 1
        with self.path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        complete, newline, _ = data.rpartition(b"\n")
        self._offset += len(complete) + len(newline)
        return [record for line in complete.splitlines() if (record := parse_record(line)) is not None]


def parse_record(line: bytes | str) -> dict[str, Any] | None:
    """One line as a record; None when it is no JSON object (a line cut off by a crash)."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def number(record: Mapping[str, Any], *path: str) -> float | None:
    """The finite number at a path of keys, or None."""
    value: Any = record
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    usable = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if usable else None
