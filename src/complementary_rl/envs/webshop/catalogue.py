"""What a shop sells: products as the pages show them and as the reward reads them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from complementary_rl.seeds import rng


@dataclass(frozen=True, slots=True)
class Review:
    """A customer's review; `score` is the number of stars as it is shown."""

    title: str
    score: str
    body: str


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody asked for with a product in mind: a sentence, the attributes it names, and options in plain words."""

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """One product.

    `options` maps a name ("color") to its values in lower case; `category` is the path from the department down; `query` the
    term it is listed under. `prices` holds one price in dollars, or the two ends of a range. `request` is the sentence from which
    goals with every combination of options are made, `human_requests` are those that people wrote.
    """

    asin: str
    title: str
    query: str
    department: str
    category: tuple[str, ...]
    description: str
    bullets: tuple[str, ...]
    attributes: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]
    prices: tuple[float, ...]
    request: Request | None = None
    human_requests: tuple[Request, ...] = ()
    reviews: tuple[Review, ...] = ()
    rating: str = "N.A."
    price: float = field(init=False)
    """Dollars to pay: the price, or a number in its range that the product's identity decides."""

    def __post_init__(self) -> None:
        low, high = min(self.prices), max(self.prices)
        # Drawn for ranges only: a generator costs more than all the rest.
        object.__setattr__(self, "price", low if low == high else float(rng("webshop/price", self.asin).uniform(low, high)))

    @property
    def price_tag(self) -> str:
        """The price as the shop shows it."""
        return " to ".join(f"${price}" for price in self.prices)

    @property
    def indexed_text(self) -> str:
        """What the search sees: title, description, the first bullet point and the options, in lower case."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        return " ".join([self.title, self.description, *self.bullets[:1], options]).lower()


Catalogue = Sequence[Product]
