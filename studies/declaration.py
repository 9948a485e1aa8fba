"""A declared comparison: `studies/declarations/NAME.toml` says what is compared, on which seeds, and which figures it is there for."""

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from complementary_rl.config import Config
from complementary_rl.config_file import load_config
from complementary_rl.configs import find_config
from complementary_rl.errors import ConfigError

DECLARATIONS = Path(__file__).parent / "declarations"
CONFIGS = Path(__file__).parent / "configs"

Overrides = dict[str, JsonValue]
"""Dotted names of settings and their values."""


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Seeds(_Table):
    """Which seeds settings were chosen on, and which are reported; no seed is both."""

    development: tuple[int, ...] = (0, 11)
    reported: tuple[int, ...] = (1, 2, 3, 4, 5)


class Comparison(_Table):
    """A difference the study is there for, taken seed by seed: `of` minus `against`."""

    of: tuple[str, str]
    """Variant and measure."""
    against: tuple[str, str]
    """Variant and measure that are subtracted."""


class Reach(_Table):
    """After which share of `against`'s training episodes does `of` reach its final success in training?"""

    of: tuple[str, str]
    """Variant and curve."""
    against: tuple[str, str]
    """Variant and curve whose last tenth is the mark."""


class Study(_Table):
    """One declaration."""

    name: str
    title: str
    question: str
    """What is asked, and what would be an answer."""
    config: str
    """Shipped configuration, or the name of one in `studies/configs`, that the variants override."""
    steps: Annotated[int, Field(ge=1)] | None = None
    """Actor updates; None takes the configuration's."""
    seeds: Seeds = Seeds()
    common: Overrides = Field(default_factory=dict)
    """Settings of all variants."""
    variants: dict[str, Overrides] = Field(min_length=1)
    measures: tuple[str, ...] = Field(min_length=1)
    curves: tuple[str, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    reach: tuple[Reach, ...] = ()
    needs: Literal["cpu", "gpu"] = "cpu"
    """`gpu`: too large for a laptop."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        both = set(self.seeds.development) & set(self.seeds.reported)
        if both:
            raise ValueError(
                f"seeds {sorted(both)} are both development and reported seeds; settings chosen on a seed are not shown on it"
            )
        for what, pairs, known in (("measure", self.comparisons, self.measures), ("curve", self.reach, self.curves)):
            for pair in pairs:
                for variant, name in (pair.of, pair.against):
                    if variant not in self.variants:
                        raise ValueError(f"a comparison names the variant {variant!r}; declared: {', '.join(self.variants)}")
                    if name not in known:
                        raise ValueError(f"a comparison names the {what} {name!r}; declared: {', '.join(known)}")
        return self

    def resolve(self, variant: str, seed: int, steps: int | None = None) -> Config:
        """The configuration of one run; `steps` instead of the declared number. Raises ConfigError naming the study and the variant."""
        wanted: Overrides = {**self.common, **self.variants[variant], "run.seed": seed, "run.name": self.name}
        steps = steps or self.steps
        if steps is not None:
            wanted["run.steps"] = steps
        # JSON's scalars and lists are TOML's as well.
        overrides = [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in wanted.items()]
        try:
            return load_config(_base(self.config), overrides)
        except ConfigError as error:
            raise ConfigError(f"study {self.name}, variant {variant!r}: {error}") from error


def names() -> list[str]:
    """Declared studies."""
    return sorted(path.stem for path in DECLARATIONS.glob("*.toml"))


def load(name: str) -> Study:
    """The declaration of a name. Raises ConfigError for a name that is not declared or a declaration that does not hold together."""
    path = DECLARATIONS / f"{name}.toml"
    if not path.exists():
        raise ConfigError(f"no study {name!r}; declared: {', '.join(names())}")
    try:
        return Study.model_validate({"name": name, **tomllib.loads(path.read_text(encoding="utf-8"))})
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the declaration"
        raise ConfigError(f"{path}: {where}: {first['msg'].removeprefix('Value error, ')}") from error


def chosen(study: Study, variants: Sequence[str] | None) -> list[str]:
    """`variants`, or all of the study. Raises ConfigError for one that it does not have."""
    unknown = [name for name in variants or () if name not in study.variants]
    if unknown:
        raise ConfigError(f"study {study.name} has no variant {unknown[0]!r}; declared: {', '.join(study.variants)}")
    return list(variants or study.variants)


def _base(name: str) -> Path:
    own = CONFIGS / f"{name}.toml"
    return own if own.exists() else find_config(name)
