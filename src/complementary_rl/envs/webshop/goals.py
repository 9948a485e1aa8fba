"""Goals from a catalogue, as the original makes them: one for each combination of options, or one for each human instruction."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product as combinations

import numpy as np

from complementary_rl.envs.webshop.catalogue import Catalogue, Product, Request
from complementary_rl.envs.webshop.reward import Goal
from complementary_rl.seeds import rng

_LIMITS = [10.0 * step for step in range(1, 100)]
_TEST, _DEV = 500, 1500


@dataclass(frozen=True, slots=True)
class Candidate:
    """A goal that could be set, before its price limit is drawn."""

    product: Product
    request: Request
    number: int
    options: tuple[tuple[str, str], ...]

    def goal(self) -> Goal:
        """The goal, with a price limit that its identity decides: none for what costs nearly 1,000 dollars or more."""
        identity = f"webshop/{self.product.asin}-{self.number}"
        limit = _price_limit(identity, self.product.price)
        named = ", and ".join(f"{name}: {value}" for name, value in self.options if name)
        instruction = self.request.text.strip(".") + (f" with {named}" if named else "")
        if limit is not None:
            instruction += f", and price lower than {limit:.2f} dollars"
        return Goal(identity, self.product, instruction, self.request.attributes, self.options, limit)


def synthetic_candidates(catalogue: Catalogue) -> list[Candidate]:
    """For each product with a request, one candidate for each combination of its options."""
    return [candidate for product in catalogue if product.request for candidate in _combinations(product, product.request)]


def human_candidates(catalogue: Catalogue) -> list[Candidate]:
    """One candidate for each human request that names an attribute."""
    return [
        Candidate(product, request, number, tuple(("", option) for option in request.options))
        for product in catalogue
        for number, request in enumerate(product.human_requests)
        if request.attributes
    ]


def official_split(candidates: Sequence[Candidate]) -> dict[str, list[Candidate]]:
    """The split of the literature after its fixed shuffle: the first 500 goals are test, the next 1,000 dev, the rest train."""
    order = list(candidates)
    random.Random(233).shuffle(order)
    return {"test": order[:_TEST], "dev": order[_TEST:_DEV], "train": order[_DEV:]}


def split_by_product(candidates: Sequence[Candidate], seed: int) -> dict[str, list[Candidate]]:
    """15 % of the products for test goals, 15 % for dev goals, the rest for training: no product is in two splits. Shuffled."""
    asins = list(dict.fromkeys(candidate.product.asin for candidate in candidates))
    part = len(asins) * 15 // 100
    places = {asins[index]: place for place, index in enumerate(rng("webshop/products", seed).permutation(len(asins)))}
    split: dict[str, list[Candidate]] = {"test": [], "dev": [], "train": []}
    for index in rng("webshop/order", seed).permutation(len(candidates)):
        place = places[candidates[index].product.asin]
        split["test" if place < part else "dev" if place < 2 * part else "train"].append(candidates[index])
    return split


def draw(candidates: Sequence[Candidate], count: int, *, weighted: bool, identity: tuple[str | int, ...]) -> list[Candidate]:
    """`count` different candidates in their order, or all if there are no more.

    With `weighted`, one whose attributes few others name is likelier: each weighs the mean of 1 / (goals that name the attribute).
    """
    if len(candidates) <= count:
        return list(candidates)
    counts = Counter(name for candidate in candidates for name in candidate.request.attributes)
    weights = np.ones(len(candidates))
    if weighted:
        weights = np.array([np.mean([1 / counts[name] for name in candidate.request.attributes]) for candidate in candidates])
    chosen = rng("webshop/goals", *identity).choice(len(candidates), size=count, replace=False, p=weights / weights.sum())
    return [candidates[position] for position in sorted(chosen)]


def _combinations(product: Product, request: Request) -> Iterator[Candidate]:
    names = sorted(product.options)
    for number, values in enumerate(combinations(*(product.options[name] for name in names))):
        yield Candidate(product, request, number, tuple(zip(names, values, strict=True)))


def _price_limit(identity: str, price: float) -> float | None:
    above = [limit for limit in _LIMITS if limit > price][:4]
    return float(max(rng("webshop/price-limit", identity).choice(above, size=2, replace=False))) if len(above) >= 2 else None
