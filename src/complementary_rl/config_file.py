"""Reading and writing run configurations: TOML files, dotted overrides, and errors that name the field and the remedy."""

import difflib
import hashlib
import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import tomli_w
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from complementary_rl.config import Config
from complementary_rl.errors import ConfigError


def load_config(path: Path | None = None, overrides: Sequence[str] = ()) -> Config:
    """The configuration of `path` (or all defaults) with overrides such as ``"actor.optim.lr=1e-3"`` applied in order.

    An override's value is read as TOML, and as a plain string where it is not TOML. Raises ConfigError, with the dotted path of the
    field, for a missing file, broken TOML, unknown keys (the nearest valid name is given) and values that do not fit.
    """
    data: dict[str, Any] = {}
    if path is not None:
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"cannot read the config file {path}: {error.strerror}; give the path of a TOML file") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} is not valid TOML: {error}") from error
    for override in overrides:
        _apply_override(data, override)
    return parse_config(data)


def parse_config(data: dict[str, Any]) -> Config:
    """Validate nested tables as a `Config`; raises ConfigError as `load_config` does."""
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(detail) for detail in error.errors())) from error


def dump_config(config: Config) -> str:
    """The resolved configuration as TOML; `load_config` of it gives an equal configuration."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def config_hash(config: Config) -> str:
    """Twelve hex digits that identify everything that shapes results; where the run is written and on how many processes it runs do not
    count."""
    data = config.model_dump(mode="json")
    data["run"].pop("dir")
    data["run"].pop("name")
    data.pop("cluster")
    for model in ("actor", "extractor"):
        for who_computes in ("engine", "sampler", "vllm"):
            data[model].pop(who_computes)
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:12]


def _apply_override(data: dict[str, Any], override: str) -> None:
    dotted, equals, text = override.partition("=")
    keys = dotted.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError(f"override {override!r} is not of the form section.field=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    table = data
    for key in keys[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{dotted}: {key!r} is a value, not a section")
    table[keys[-1]] = value


def _explain(detail: ErrorDetails) -> str:
    location = [str(part) for part in detail["loc"]]
    dotted = ".".join(location)
    if detail["type"] == "extra_forbidden":
        names = _field_names(location[:-1])
        near = difflib.get_close_matches(location[-1], names, n=1, cutoff=0.5)
        hint = f"did you mean {'.'.join([*location[:-1], near[0]])!r}?" if near else f"valid names here: {', '.join(names)}"
        return f"{dotted}: unknown setting; {hint}"
    message = detail["msg"].removeprefix("Value error, ")
    if not dotted:
        return message
    given = "" if detail["type"] == "missing" else f" (given: {detail['input']!r})"
    return f"{dotted}: {message}{given}"


def _field_names(location: Sequence[str]) -> list[str]:
    model: type[BaseModel] = Config
    for key in location:
        annotation = model.model_fields[key].annotation
        # A section, or a section that may be left out: `LoraConfig | None`.
        model = next(part for part in (annotation, *get_args(annotation)) if isinstance(part, type) and issubclass(part, BaseModel))
    return list(model.model_fields)
