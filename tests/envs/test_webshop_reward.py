"""The reward of WebShop: cases computed by hand, and a plain transcription of the published rules on drawn purchases."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rapidfuzz import fuzz, utils

from complementary_rl.envs.webshop.catalogue import Product
from complementary_rl.envs.webshop.generated import generate_products
from complementary_rl.envs.webshop.goals import Candidate, human_candidates, synthetic_candidates
from complementary_rl.envs.webshop.official import load_products
from complementary_rl.envs.webshop.reward import COLOURS, Goal, attributes_met, options_met, reward, title_nouns, type_match
from complementary_rl.seeds import rng

TEAPOT = "Glass Teapot with Infuser"


def product(title: str = TEAPOT, **changes: Any) -> Product:
    fields: dict[str, Any] = {
        "asin": "B000000001",
        "query": "teapots",
        "department": "home",
        "category": ("Home", "Kitchen", "Teapots"),
        "description": "",
        "bullets": (),
        "attributes": ("heat resistant", "easy clean"),
        "options": {"color": ("clear", "dark blue"), "size": ("small", "large", "x-large")},
        "prices": (24.5,),
    }
    return Product(title=title, **fields | changes)


def goal(**changes: Any) -> Goal:
    fields: dict[str, Any] = {
        "id": "webshop/x",
        "product": product(),
        "instruction": "",
        "attributes": ("heat resistant", "easy clean"),
        "options": (("color", "dark blue"), ("size", "large")),
        "price_limit": 30.0,
    }
    return Goal(**fields | changes)


WANTED = {"color": "dark blue", "size": "large"}


@pytest.mark.parametrize(
    ("bought", "chosen", "score"),
    [
        (product(), WANTED, 1.0),  # 2 attributes + 2 options + price, of 5
        (product(prices=(30.0,)), WANTED, 1.0),
        (product(prices=(30.01,)), WANTED, 4 / 5),
        (product(), {"color": "dark blue"}, 4 / 5),
        (product(), {}, 3 / 5),
        (product(attributes=()), WANTED, 3 / 5),
        (product(attributes=("easy to clean",)), WANTED, 4 / 5),
        (product(attributes=(), description="It is Heat Resistant."), WANTED, 4 / 5),
        (product(attributes=(), bullets=("heat", "resistant and easy clean")), WANTED, 1.0),  # points are joined by a space
        (product("Copper Kettle", query="kettles", category=("Home", "Kitchen", "Kettles")), WANTED, 0.0),  # no common noun
        (product("Glass Pan", query="pans", category=("Home", "Pans")), WANTED, 1.0),  # 1 of 3 nouns > 0.2
    ],
)
def test_purchases_by_hand(bought: Product, chosen: dict[str, str], score: float) -> None:
    assert reward(bought, chosen, goal()) == pytest.approx(score, abs=1e-12)


def test_a_goal_without_limit_or_options() -> None:
    assert reward(product(prices=(2000.0,)), {}, goal(price_limit=None, options=())) == 1.0
    assert reward(product(prices=(2000.0,)), {}, goal(price_limit=30.0, options=())) == pytest.approx(2 / 3)


TEN_NOUNS = "Alpha Beta Gamma Delta Epsilon Zeta Eta Theta Iota Kappa"


@pytest.mark.parametrize(
    ("title", "query", "category", "factor"),
    [
        ("Alpha Beta Gamma", "other", ("X",), 1.0),  # 3 of 10
        ("Alpha Beta", "other", ("X",), 0.5),  # 2 of 10 is not above 0.2, and nothing else relates them
        ("Alpha Beta", "teapots", ("X",), 1.0),  # same query
        ("Alpha Beta", "other", ("Teapots", "Home", "X"), 1.0),  # two levels, in any order
        ("Alpha Beta", "other", ("Home", "Home"), 0.5),  # one level twice is one level
        ("Alpha", "other", ("X",), 0.5),  # 1 of 10 is not below 0.1
        ("Omega", "teapots", ("Home", "Kitchen", "Teapots"), 0.0),
    ],
)
def test_the_type_by_hand(title: str, query: str, category: tuple[str, ...], factor: float) -> None:
    assert type_match(product(title, query=query, category=category), product(TEN_NOUNS)) == factor


def test_a_slight_overlap_counts_a_tenth_even_in_the_same_category() -> None:
    assert type_match(product("Alpha"), product(f"{TEN_NOUNS} Lambda")) == 0.1


def test_the_nouns_of_a_title() -> None:
    title = "ACME Men's Rain-Proof MP3 Boots (4K, 2pcs) for the Boots of Dr.Who"
    assert title_nouns(title) == ["acme", "men", "rain", "proof", "mp3", "boots", "boots", "dr.who"]


def test_a_title_without_nouns_relates_by_category_only() -> None:
    assert title_nouns("2 x 4, with 12 of 3.1") == ["x"]
    assert type_match(product("Pan"), product("12 - 24")) == 1.0
    assert type_match(product("Pan", query="pans", category=()), product("12 - 24")) == 0.5


@pytest.mark.parametrize(
    ("name", "wanted", "chosen", "met"),
    [
        ("color", "blue", "dark blue 12", 1),  # "dark blue" is reduced to "blue", which the goal is
        ("color", "light blue", "blue", 1),
        ("color", "navy", "blue", 0),
        ("size", "large", "x-large", 0),
        ("size", "x-large", "x-large", 1),
        ("", "large", "x-large", 1),  # a person's word is compared alone
        ("size", "8", "8.5", 0),
        ("size", "8.5", "8", 1),  # all words of "8" are in "size 8 5"
        ("color", "white wash", "white wash", 0),  # "wash" holds "ash": this goal cannot be met in the original either
        ("", "white wash", "white wash", 1),
    ],
)
def test_options_by_hand(name: str, wanted: str, chosen: str, met: int) -> None:
    assert options_met({"any": chosen}, goal(options=((name, wanted),))) == met


def test_each_wanted_option_counts_once() -> None:
    assert options_met({"a": "red", "b": "red"}, goal(options=(("color", "red"), ("size", "9")))) == 1
    assert options_met({"a": "red"}, goal(options=(("", "red"), ("", "dark red")))) == 1  # "dark" comes before "red"


@pytest.mark.parametrize(
    ("listed", "asked", "met"),
    [("essential oil", "essential oils", 1), ("tea tree oil", "tea tree", 1), ("tea bag", "tea tree", 0), ("", "tea tree", 0)],
)
def test_attributes_in_much_the_same_words(listed: str, asked: str, met: int) -> None:
    assert attributes_met(product(attributes=(listed,)), goal(attributes=(asked,))) == met


def plain_reward(bought: Product, options: Mapping[str, str], price: float, wanted: Product, aim: Goal) -> float:
    """The published rules, step by step, on plain values; nouns as this package takes them."""

    def ratio(a: object, b: object) -> int:
        texts = ["".join(char for char in str(text) if ord(char) < 128) for text in (a, b)]
        return round(fuzz.token_set_ratio(*[utils.default_process(text) for text in texts]))

    def basic_colour(thing: Any) -> Any:
        for colour in COLOURS:
            if colour in thing:  # part of a text, or member of a pair
                return colour
        return thing

    attributes = 0
    for asked in aim.attributes:
        if (
            max([ratio(has, asked) for has in bought.attributes], default=0) > 85
            or asked in bought.title.lower()
            or asked in " ".join(bought.bullets).lower()
            or asked in bought.description.lower()
        ):
            attributes += 1
    matches = 0
    for pair in aim.options:
        asked_option = basic_colour(pair if pair[0] else pair[1])
        if any(ratio(basic_colour(value), asked_option) > 85 for value in options.values()):
            matches += 1
    fits = 1 if aim.price_limit is None or price <= aim.price_limit else 0
    total = (attributes + matches + fits) / (len(aim.attributes) + len(aim.options) + 1)
    wanted_nouns, bought_nouns = (title_nouns(title) for title in (wanted.title, bought.title))
    score = 0.2 if not wanted_nouns else len({*wanted_nouns} & {*bought_nouns}) / len(wanted_nouns)
    kind = 1.0
    if not (bought.query == wanted.query or len({*bought.category} & {*wanted.category}) >= 2 or score > 0.2):
        kind = 0.5
    if score < 0.1:
        kind = 0.1
    if score == 0.0:
        kind = 0.0
    return total * kind


def compare(products: list[Product], candidates: list[Candidate], purchases: int) -> set[float]:
    random = rng("tests/webshop/reward", purchases)
    by_query: dict[str, list[Product]] = {}
    for item in products:
        by_query.setdefault(item.query, []).append(item)
    found = set()
    for _ in range(purchases):
        aim = candidates[random.integers(len(candidates))].goal()
        pool = [aim.product] if random.random() < 0.3 else by_query[aim.product.query] if random.random() < 0.6 else products
        bought = pool[random.integers(len(pool))]
        chosen = {name: values[random.integers(len(values))] for name, values in bought.options.items() if random.random() < 0.8}
        chosen |= {name: value for name, value in aim.options if value in bought.options.get(name, ()) and random.random() < 0.5}
        score = reward(bought, chosen, aim)
        assert score == plain_reward(bought, chosen, bought.price, aim.product, aim), (aim, bought, chosen)
        found.add(round(score, 2))
    return found


def test_drawn_purchases_in_a_generated_catalogue_score_by_the_published_rules() -> None:
    products = generate_products(200, 3)
    found = compare(products, synthetic_candidates(products), 600)
    assert {0.0, 0.5, 1.0} <= found
    assert len(found) > 15


@pytest.mark.skipif("CRL_SHARED_DATA" not in os.environ, reason="CRL_SHARED_DATA names no folder with the original's data")
def test_drawn_purchases_in_the_original_catalogue_score_by_the_published_rules() -> None:
    products = load_products(Path(os.environ["CRL_SHARED_DATA"]) / "webshop", 1000)
    assert len(compare(products, synthetic_candidates(products), 600)) > 20
    assert len(compare(products, human_candidates(products), 200)) > 5
