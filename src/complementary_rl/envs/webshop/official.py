"""Reads the original's data files, which users fetch themselves; nothing of them comes with this package.

A folder holds products and attributes, and it may hold human instructions and reviews, each under one of its published names.
"""

import json
import lzma
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from complementary_rl.envs.webshop.catalogue import Product, Request, Review
from complementary_rl.errors import UserError

# The last two are the documents of the original's search index, which hold the products.
PRODUCT_FILES = ("items_shuffle_1000.json", "items_shuffle.json", "docs_1k.jsonl.xz", "documents.jsonl")
ATTRIBUTE_FILES = ("items_ins_v2_1000.json", "items_ins_v2.json")
HUMAN_FILES = ("items_human_ins.json",)
REVIEW_FILES = ("reviews.json",)

_DEFAULT_PRICE = 100.0
_LONGEST_ASIN = 10

T = TypeVar("T")


class _Record(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)


class _Option(_Record):
    value: str


class _Human(_Record):
    instruction: str
    instruction_attributes: list[str]
    instruction_options: list[str]


class _Item(_Record):
    asin: str
    name: str
    query: str
    category: str
    product_category: str = ""
    full_description: str = ""
    small_description: list[str] | str = ""
    pricing: list[float] | None = None
    customization_options: dict[str, list[_Option] | None] | Literal[""] | None = None
    instructions: list[_Human] = []

    @field_validator("pricing", mode="before")
    @classmethod
    def _amounts(cls, pricing: object) -> object:
        """``"$1,010.99 - $1,200.50"`` → ``[1010.99, 1200.5]``."""
        return [float(re.sub(r"[^\d.]", "", part)) for part in pricing.split("$")[1:]] if isinstance(pricing, str) else pricing


class _Attributes(_Record):
    attributes: list[str] = []
    instruction: str | None = None
    instruction_attributes: list[str] | None = None


class _Review(_Record):
    title: str = ""
    score: str = Field("", validation_alias=AliasChoices("score", "stars"))
    body: str = Field("", validation_alias=AliasChoices("body", "review"))


class _Reviews(_Record):
    asin: str
    reviews: list[_Review] = []
    average_rating: str = "N.A."


def load_products(folder: Path, most: int) -> list[Product]:
    """The first `most` products of a data folder, without those whose asin is unusable or was there before.

    Raises UserError when the folder or a needed file is missing, or a file is damaged: which, where in it, and why.
    """
    if not folder.is_dir():
        raise UserError(f"webshop: there is no folder {folder}; `data` is the folder that holds {PRODUCT_FILES[0]}")
    attributes = dict(_by_asin(_needed(folder, ATTRIBUTE_FILES), TypeAdapter(_Attributes)))
    human = dict(_by_asin(path, TypeAdapter(list[_Human]))) if (path := _found(folder, HUMAN_FILES)) else {}
    reviews = (
        {entry.asin: entry for entry in _listed(path, TypeAdapter(_Reviews))} if (path := _found(folder, REVIEW_FILES)) else {}
    )
    products: dict[str, Product] = {}
    source = _needed(folder, PRODUCT_FILES)
    for item in _listed(source, TypeAdapter(_Item)):
        if item.asin == "nan" or len(item.asin) > _LONGEST_ASIN or item.asin in products:
            continue
        if len(products) == most:
            break
        written = human.get(item.asin, item.instructions)
        products[item.asin] = _product(item, attributes.get(item.asin, _Attributes()), written, reviews.get(item.asin))
    if not products:
        raise UserError(f"webshop: {source} holds no products")
    return list(products.values())


def _product(item: _Item, attributes: _Attributes, human: Iterable[_Human], reviews: _Reviews | None) -> Product:
    named = attributes.instruction_attributes or []
    return Product(
        asin=item.asin,
        title=item.name,
        query=item.query.lower().strip(),
        department=item.category,
        category=tuple(part.strip() for part in item.product_category.split("›")),
        description=item.full_description,
        bullets=(item.small_description,) if isinstance(item.small_description, str) else tuple(item.small_description),
        attributes=tuple(attributes.attributes),
        options={
            name.lower(): tuple(option.value.strip().replace("/", " | ").lower() for option in options)
            for name, options in (item.customization_options or {}).items()
            if options is not None
        },
        prices=tuple((item.pricing or [_DEFAULT_PRICE])[:2]),
        request=Request(attributes.instruction, tuple(named)) if attributes.instruction and named else None,
        human_requests=tuple(
            Request(entry.instruction, tuple(entry.instruction_attributes), tuple(entry.instruction_options)) for entry in human
        ),
        reviews=tuple(Review(review.title, review.score, review.body) for review in reviews.reviews) if reviews else (),
        rating=reviews.average_rating if reviews else "N.A.",
    )


def _found(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _needed(folder: Path, names: tuple[str, ...]) -> Path:
    found = _found(folder, names)
    if found is None:
        raise UserError(f"webshop: {folder} has none of {', '.join(names)}; docs/environments.md says where to get them")
    return found


def _by_asin(path: Path, kind: TypeAdapter[T]) -> Iterator[tuple[str, T]]:
    content = _json(path, _text(path), "the file")
    if not isinstance(content, dict):
        raise UserError(f"webshop: {path} must hold an object with an entry for each asin, not a {type(content).__name__}")
    return ((asin, _checked(kind, record, f"{path}: {asin}")) for asin, record in content.items())


def _listed(path: Path, kind: TypeAdapter[T]) -> Iterator[T]:
    if ".jsonl" in path.suffixes:
        for number, line in enumerate(_text(path).splitlines(), start=1):
            document = _json(path, line, f"line {number}")
            if not isinstance(document, dict) or "product" not in document:
                raise UserError(f"webshop: {path}: line {number} must be an object with a 'product'")
            yield _checked(kind, document["product"], f"{path}: line {number}")
        return
    content = _json(path, _text(path), "the file")
    if not isinstance(content, list):
        raise UserError(f"webshop: {path} must hold a list, not a {type(content).__name__}")
    for number, record in enumerate(content, start=1):
        yield _checked(kind, record, f"{path}: record {number}")


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
        return (lzma.decompress(content) if path.suffix == ".xz" else content).decode()
    except (OSError, lzma.LZMAError, UnicodeDecodeError) as error:
        raise UserError(f"webshop: {path} cannot be read ({error}); fetch it again") from error


def _json(path: Path, text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UserError(f"webshop: {path}: {where} is not JSON ({error}); fetch it again") from error


def _checked(kind: TypeAdapter[T], record: object, where: str) -> T:
    try:
        return kind.validate_python(record)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the record"
        raise UserError(f"webshop: {where}: {place}: {first['msg']}, not {str(first['input'])[:60]!r}") from error
