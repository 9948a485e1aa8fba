"""Catalogues from a seed: products put together from the grammar, so that the shop works anywhere, without anybody's data.

What a product *is* (its attributes) is told partly in the title, partly in the features and the description, as in a real shop: the
search, which does not read all of them, finds the kind of product easily and the right one often.
"""

import numpy as np

from complementary_rl.envs.webshop.catalogue import Product, Request, Review
from complementary_rl.envs.webshop.grammar import (
    AXES,
    BRAND_BEGINNINGS,
    BRAND_ENDINGS,
    COMPLAINTS,
    OPENERS,
    PRAISE,
    SHELVES,
    Kind,
    Shelf,
)
from complementary_rl.seeds import derive_seed, rng

_KINDS = [(shelf, kind) for shelf in SHELVES for kind in shelf.kinds]
_RANGE_SHARE = 0.1
_TOLD_SHARE = 0.5
_ALPHABET = "0123456789ABCDEFGHJKLMNPQRSTUVWXYZ"


def generate_products(count: int, seed: int) -> list[Product]:
    """`count` products; the first ones stay the same when there are more."""
    return [_product(seed, number) for number in range(count)]


def _product(seed: int, number: int) -> Product:
    random = rng("webshop/product", seed, number)
    shelf, kind = _KINDS[random.integers(len(_KINDS))]
    before, after = _common_first(random, shelf.wares.before, 1, 4), _common_first(random, shelf.wares.after, 1, 3)
    use, noun = _one(random, shelf.wares.uses), _one(random, kind.nouns)
    brand = (_one(random, BRAND_BEGINNINGS) + _one(random, BRAND_ENDINGS)).capitalize()
    category = tuple(kind.path.split(" › "))
    reviews = _reviews(random, noun)
    stars = [int(review.score) for review in reviews]
    return Product(
        asin=_asin(seed, number),
        title=_title(random, brand, before, noun, after, use),
        query=kind.query,
        department=category[0].lower(),
        category=category,
        description=_description(brand, noun, use, before[-1], after[-1]),
        bullets=(
            f"Made for {use}.",
            *(f"{text.capitalize()}: what our customers ask for." for text in random.permutation([*before, *after])),
        ),
        attributes=(*before, *after),
        options=_options(random, shelf),
        prices=_prices(random, kind),
        request=_request(random, kind, before, after),
        reviews=reviews,
        rating=f"{sum(stars) / len(stars):.1f} out of 5 stars" if stars else "N.A.",
    )


def _asin(seed: int, number: int) -> str:
    digest = derive_seed("webshop/asin", seed, number)
    return "B0" + "".join(_ALPHABET[digest // len(_ALPHABET) ** place % len(_ALPHABET)] for place in range(8))


def _title(random: np.random.Generator, brand: str, before: list[str], noun: str, after: list[str], use: str) -> str:
    """The noun, about half of the attributes, and the use: "Veroric Non Slip Sandals with Rubber Sole for Hiking"."""
    told = {attribute for attribute in (*before, *after) if random.random() < _TOLD_SHARE}
    parts = [brand, *(text.title() for text in before if text in told), noun]
    if told & set(after):
        parts += ["with", " and ".join(text.title() for text in after if text in told)]
    return " ".join([*parts, "for", use.title()])


def _request(random: np.random.Generator, kind: Kind, before: list[str], after: list[str]) -> Request:
    wanted_before = _some(random, before, int(random.integers(1, len(before) + 1)))
    wanted_after = _some(random, after, int(random.integers(0, min(2, len(after)) + 1)))
    ending = f" with {', '.join(wanted_after)}" if wanted_after else ""
    return Request(f"{_one(random, OPENERS)} {', '.join(wanted_before)} {kind.query}{ending}", (*wanted_before, *wanted_after))


def _options(random: np.random.Generator, shelf: Shelf) -> dict[str, tuple[str, ...]]:
    options = {}
    for axis in shelf.axes:
        name, values, fewest, most = AXES[axis]
        options[name] = tuple(_some(random, values, int(random.integers(fewest, most + 1))))
    return options


def _prices(random: np.random.Generator, kind: Kind) -> tuple[float, ...]:
    price = round(float(random.uniform(kind.cheapest, kind.dearest)), 2)
    return (price, round(price * float(random.uniform(1.1, 1.6)), 2)) if random.random() < _RANGE_SHARE else (price,)


def _description(brand: str, noun: str, use: str, first: str, second: str) -> str:
    return f"The {brand} {noun.lower()} was designed with {use} in mind. It is {first}, and you will like the {second}."


def _reviews(random: np.random.Generator, noun: str) -> tuple[Review, ...]:
    reviews = []
    for _ in range(random.integers(0, 4)):
        happy = bool(random.random() < 0.7)
        stars = int(random.integers(4, 6) if happy else random.integers(1, 4))
        reviews.append(
            Review(_one(random, PRAISE if happy else COMPLAINTS), str(stars), f"I have had this {noun.lower()} for a while.")
        )
    return tuple(reviews)


def _common_first(random: np.random.Generator, texts: tuple[str, ...], fewest: int, most: int) -> list[str]:
    """Between `fewest` and `most` different texts, those at the front of the list more often."""
    weights = 1 / np.arange(1, len(texts) + 1)
    count = int(random.integers(fewest, most + 1))
    return [texts[index] for index in random.choice(len(texts), size=count, replace=False, p=weights / weights.sum())]


def _some(random: np.random.Generator, texts: list[str] | tuple[str, ...], count: int) -> list[str]:
    """`count` different texts in their order."""
    return [texts[index] for index in sorted(random.choice(len(texts), size=count, replace=False))]


def _one(random: np.random.Generator, texts: tuple[str, ...]) -> str:
    return texts[random.integers(len(texts))]
