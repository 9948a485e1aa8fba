"""Which packages tasks are made of, how many of each, and on which side of the split: a file, or names and a draw."""

import tomllib
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from complementary_rl.errors import UserError
from complementary_rl.seeds import rng
from complementary_rl.types import Split

RECIPE = Path(__file__).with_name("recipe.toml")
"""The recipe that comes with the package."""


class Ingredient(BaseModel, frozen=True, extra="forbid"):
    """A package on PyPI, or a folder where there is one at `name`, and how many `tasks` to make of it."""

    name: str
    version: str = ""
    tasks: int = Field(ge=1)
    split: Split

    @property
    def requirement(self) -> str:
        """As pip takes it."""
        return f"{self.name}=={self.version}" if self.version else self.name


class Recipe(BaseModel, frozen=True, extra="forbid"):
    """`seed` draws the bugs. A package is on one side of the split with all its tasks."""

    seed: int
    packages: tuple[Ingredient, ...] = Field(min_length=1)


def read_recipe(file: Path) -> Recipe:
    """Raises UserError, with the place and the fault, for a file that is no recipe."""
    try:
        recipe = Recipe.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"swe: {file}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"swe: the recipe {file} cannot be read: {error}") from error
    names = [one.name for one in recipe.packages]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise UserError(f"swe: {file} names {', '.join(sorted(twice))} more than once")
    return recipe


def drawn_recipe(packages: Sequence[str], tasks: int, heldout: float, seed: int) -> Recipe:
    """As many `tasks` of each package; a share of `heldout` of the packages, drawn by `seed`, is held out."""
    order = rng("swe-split", seed).permutation(len(packages))
    held_out = set(order[: round(heldout * len(packages))])
    ingredients = [
        Ingredient(name=package, tasks=tasks, split="heldout" if index in held_out else "train")
        for index, package in enumerate(packages)
    ]
    return Recipe(seed=seed, packages=tuple(ingredients))
