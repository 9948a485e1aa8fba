"""The pages of the shop: search, results, an item, its sub-pages, the receipt. What a page shows and what can be clicked on it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from complementary_rl.envs.webshop.catalogue import Catalogue, Product
from complementary_rl.envs.webshop.reward import Goal, reward
from complementary_rl.envs.webshop.search import SearchEngine

_PER_PAGE = 10
SEPARATOR = " [SEP] "


class Shop:
    """Products and the search over them, shared by all visits."""

    def __init__(self, catalogue: Catalogue, *, show_attributes: bool = False) -> None:
        self.catalogue = catalogue
        self.engine = SearchEngine(catalogue)
        self.show_attributes = show_attributes


Link = Callable[[], "Page"]


@dataclass(frozen=True, slots=True)
class Page:
    """What a customer sees: the visible texts in order, and what each clickable text (lower case) does."""

    texts: Sequence[str]
    links: dict[str, Link]
    has_search_bar: bool = False

    def __str__(self) -> str:
        return SEPARATOR.join(" ".join(text.split()) for text in self.texts)


class Visit:
    """One customer with one goal. `page` is where they are; `score` is None until something is bought."""

    def __init__(self, shop: Shop, goal: Goal) -> None:
        self._shop = shop
        self._goal = goal
        self._instruction = ("Instruction:", goal.instruction)
        self._chosen: dict[str, str] = {}
        self.score: float | None = None
        self.page = self._home()

    def search(self, words: str) -> None:
        """Search the shop, from any page. Options chosen so far are forgotten."""
        self.page = self._results(words, 1)

    def click(self, text: str) -> bool:
        """Follow a link of the page; False, and nothing happens, where there is none of that text."""
        follow = self.page.links.get(" ".join(text.lower().split()))
        if follow is not None:
            self.page = follow()
        return follow is not None

    def _home(self) -> Page:
        return Page(("WebShop", *self._instruction, "Search"), {}, has_search_bar=True)

    def _results(self, words: str, number: int) -> Page:
        self._chosen = {}
        hits = self._shop.engine.search(words)
        buttons: dict[str, Link] = {"Back to Search": self._home}
        if number > 1:
            buttons["< Prev"] = partial(self._results, words, number - 1)
        if number * _PER_PAGE < len(hits):
            buttons["Next >"] = partial(self._results, words, number + 1)
        shown = [self._shop.catalogue[hit] for hit in hits[(number - 1) * _PER_PAGE : number * _PER_PAGE]]
        heading = f"Page {number} (Total results: {len(hits)})"
        first, *turning = buttons
        listed = (text for product in shown for text in (product.asin, product.title, product.price_tag))
        here = partial(self._results, words, number)
        return Page(
            (*self._instruction, first, heading, *turning, *listed),
            _lower(buttons) | {product.asin.lower(): partial(self._item, product, here) for product in shown},
        )

    def _item(self, product: Product, back: Link) -> Page:
        here = partial(self._item, product, back)
        leave: dict[str, Link] = {"Back to Search": self._home, "< Prev": back}
        look: dict[str, Link] = {
            "Description": partial(self._sub_page, (product.description or "No Description",), here),
            "Features": partial(self._sub_page, product.bullets or ("No Features",), here),
            "Reviews": partial(self._sub_page, _reviews(product), here),
        }
        if self._shop.show_attributes:
            texts = (*product.attributes, product.department, product.query, " › ".join(product.category))
            look["Attributes"] = partial(self._sub_page, texts, here)
        buttons = _lower(leave | look | {"Buy Now": partial(self._buy, product)})
        options: dict[str, Link] = {
            " ".join(value.split()): partial(self._choose, name, value, here)
            for name, values in product.options.items()
            for value in values
        }
        offered = (text for name, values in product.options.items() for text in (name, *values))
        about = (product.title, f"Price: {product.price_tag}", f"Rating: {product.rating}")
        # Buttons come first, and win where an option has the text of a button.
        return Page((*self._instruction, *leave, *offered, *about, *look, "Buy Now"), buttons | options | buttons)

    def _sub_page(self, texts: Sequence[str], back: Link) -> Page:
        buttons: dict[str, Link] = {"Back to Search": self._home, "< Prev": back}
        return Page((*self._instruction, *buttons, *texts), _lower(buttons))

    def _choose(self, name: str, value: str, back: Link) -> Page:
        self._chosen[name] = value
        return back()

    def _buy(self, product: Product) -> Page:
        self.score = reward(product, self._chosen, self._goal)
        bought = ("Purchased", "asin", product.asin, "options", json.dumps(self._chosen, ensure_ascii=False))
        return Page(("Thank you for shopping with us!", *bought, "Your score (min 0.0, max 1.0)", str(self.score)), {})


def _lower(buttons: dict[str, Link]) -> dict[str, Link]:
    return {text.lower(): follow for text, follow in buttons.items()}


def _reviews(product: Product) -> tuple[str, ...]:
    return tuple(text for review in product.reviews for text in (f'"{review.title}"', review.score, review.body)) or ("No Reviews",)
