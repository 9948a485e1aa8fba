"""The reward of WebShop (Yao et al. 2022, arXiv 2207.01206, section 3 and appendix): what was bought against what was asked for.

``r_type · (attributes met + options met + [price ≤ limit]) / (attributes + options + 1)``. Two things differ from the original: nouns of
titles are taken to be all its words but stop words and what begins with a digit (the original asks a spaCy model, which tags nearly every
capitalised word of a title as a noun), and prices of ranges and price limits have seeds.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from bm25s.stopwords import STOPWORDS_EN
from rapidfuzz import fuzz, utils

from complementary_rl.envs.webshop.catalogue import Product

# An option that contains one of these words counts as that colour; the first in this order decides. Words and order are the original's:
# rewards cannot agree without them.
COLOURS = (
    "alabaster", "apricot", "aqua", "ash", "asphalt", "azure", "banana", "beige", "black", "blue", "blush", "bordeaux",
    "bronze", "brown", "burgundy", "camel", "camo", "caramel", "champagne", "charcoal", "cheetah", "chestnut", "chocolate",
    "christmas", "coffee", "cognac", "copper", "coral", "cranberry", "cream", "crystal", "dark", "denim", "eggplant",
    "elephant", "espresso", "fuchsia", "gold", "granite", "grape", "graphite", "grass", "gray", "green", "grey", "heather",
    "indigo", "ivory", "ivy", "khaki", "lavender", "lemon", "leopard", "light", "lilac", "lime", "magenta", "maroon", "mauve",
    "merlot", "midnight", "mint", "mocha", "multicolor", "mushroom", "mustard", "natural", "navy", "nude", "olive", "orange",
    "peach", "pewter", "pink", "plum", "purple", "rainbow", "red", "rose", "royal", "rust", "sand", "sapphire", "seashell",
    "silver", "skull", "slate", "steel", "stone", "stonewash", "sunflower", "tan", "taupe", "teal", "tiger", "turquoise",
    "violet", "walnut", "wheat", "white", "wine", "yellow",
)  # fmt: skip

_SIMILAR = 85
_TITLE_WORD = re.compile(r"\b[^\W\d_]\w*(?:[.'’]\w+)*")
_NOT_NOUNS = frozenset(STOPWORDS_EN) | {"from", "you", "your", "our", "all", "up", "out", "more"}


@dataclass(frozen=True, slots=True)
class Goal:
    """What an episode asks for.

    `options` are (name, value) pairs, or ("", words) where a person named the option in free words. `price_limit` is in dollars,
    None where there is none.
    """

    id: str
    product: Product
    instruction: str
    attributes: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    price_limit: float | None


def reward(product: Product, chosen: Mapping[str, str], goal: Goal) -> float:
    """What buying `product` with the options `chosen` (name → value) is worth, 0 … 1."""
    met = (
        attributes_met(product, goal) + options_met(chosen, goal) + (goal.price_limit is None or product.price <= goal.price_limit)
    )
    return met / (len(goal.attributes) + len(goal.options) + 1) * type_match(product, goal.product)


def type_match(bought: Product, wanted: Product) -> float:
    """How far the bought thing is of the wanted type: 1, 0.5, 0.1 or 0."""
    nouns = title_nouns(wanted.title)
    overlap = len(set(nouns) & set(title_nouns(bought.title))) / len(nouns) if nouns else 0.2
    if overlap == 0:
        return 0.0
    if overlap < 0.1:
        return 0.1
    related = bought.query == wanted.query or len(set(bought.category) & set(wanted.category)) >= 2
    return 1.0 if related or overlap > 0.2 else 0.5


def attributes_met(product: Product, goal: Goal) -> int:
    """How many of the goal's attributes the product lists in much the same words, or names in its texts."""
    texts = [text.lower() for text in (product.title, " ".join(product.bullets), product.description)]
    return sum(
        any(similar(listed, attribute) for listed in product.attributes) or any(attribute in text for text in texts)
        for attribute in goal.attributes
    )


def options_met(chosen: Mapping[str, str], goal: Goal) -> int:
    """How many of the goal's options are among the chosen ones, colours reduced to their basic word."""
    values = [_colour(value) for value in chosen.values()]
    return sum(any(similar(value, wanted) for value in values) for wanted in map(_wanted_text, goal.options))


def similar(first: str, second: str) -> bool:
    """Whether two texts say much the same, by token_set_ratio as thefuzz computes it: ASCII only, rounded, above 85."""
    ratio = fuzz.token_set_ratio(
        *(text.encode("ascii", "ignore").decode() for text in (first, second)), processor=utils.default_process
    )
    return round(ratio) > _SIMILAR


def title_nouns(title: str) -> list[str]:
    """The words of a title that may be nouns, in lower case, repeats included."""
    words = (word.removesuffix("'s") for word in _TITLE_WORD.findall(title.lower()))
    return [word for word in words if word not in _NOT_NOUNS]


def _colour(value: str) -> str:
    return next((colour for colour in COLOURS if colour in value), value)


def _wanted_text(option: tuple[str, str]) -> str:
    name, value = option
    if not name:
        return _colour(value)
    # The original hands the pair itself to functions meant for texts. So a value must *be* a colour to be reduced to it, and is
    # compared with the name in front: "large" is then no match for "x-large", as it would be alone.
    return next((colour for colour in COLOURS if colour in option), str(option))
