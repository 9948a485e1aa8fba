"""Instances of SWE-bench, and of data sets with its fields, read from a local file."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from complementary_rl.errors import UserError


def _listed(value: object) -> object:
    # The published files hold lists as JSON in a text.
    return json.loads(value) if isinstance(value, str) else value


_Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]


class Instance(BaseModel, frozen=True):
    """One row, by the official names; others are ignored. The last four are there in the data sets of ``swebench`` 5 and later."""

    instance_id: str
    repo: str
    base_commit: str
    problem_statement: str
    patch: str
    test_patch: str
    version: str = ""
    failing: _Names = Field(alias="FAIL_TO_PASS", min_length=1)
    passing: _Names = Field(alias="PASS_TO_PASS")
    image: str = ""
    eval_script: str = ""
    log_parser: str = ""
    eval_type: str = ""

    @property
    def image_name(self) -> str:
        """The image that the row names, or the one that SWE-bench publishes under the instance's name."""
        return self.image or f"swebench/sweb.eval.x86_64.{self.instance_id}:latest".replace("__", "_1776_").lower()


def read_instances(file: Path) -> list[Instance]:
    """The rows of a ``.json`` (a list), ``.jsonl`` or ``.parquet`` file. Raises UserError with the row and its fault."""
    instances = []
    for number, row in enumerate(_rows(file), 1):
        try:
            instances.append(Instance.model_validate(row))
        except ValidationError as error:
            first = error.errors()[0]
            raise UserError(f"swe-bench: {file}, row {number}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    if not instances:
        raise UserError(f"swe-bench: there are no instances in {file}")
    return instances


def _rows(file: Path) -> Iterator[Any]:
    try:
        if file.suffix == ".parquet":
            yield from _parquet(file)
        elif file.suffix == ".jsonl":
            yield from (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip())
        elif file.suffix == ".json":
            yield from json.loads(file.read_text(encoding="utf-8"))
        else:
            raise UserError(f"swe-bench: {file} must end in .json, .jsonl or .parquet")
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"swe-bench: {file} cannot be read: {error}") from error


def _parquet(file: Path) -> list[Any]:
    try:
        from pyarrow import ArrowInvalid, parquet
    except ModuleNotFoundError as error:
        raise UserError("swe-bench: to read Parquet: pip install 'complementary-rl[parquet]'") from error
    try:
        return list(parquet.read_table(file).to_pylist())
    except ArrowInvalid as error:
        raise UserError(f"swe-bench: {file} cannot be read: {error}") from error
