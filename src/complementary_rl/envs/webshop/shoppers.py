"""Customers without a model, who read what an actor reads: a careful one and a random one. For baselines, tests and demonstrations.

A shopper is a generator: it yields actions and is sent the observations that follow. Both need the list of available actions.
"""

import re
from collections.abc import Generator

import numpy as np
from bm25s.stopwords import STOPWORDS_EN

from complementary_rl.envs.webshop.site import SEPARATOR

Shopper = Generator[str, str, None]

_VISITS = 4
_ACTIONS = "\nAvailable actions: "
_CLICKABLE = re.compile(r"click\[(.*?)\](?:, |$)")
_LIMIT = re.compile(r", and price lower than ([\d.]+) dollars")
_PRICE = re.compile(r"\$(\d+\.?\d*)")
_WORD = re.compile(r"[\w.'&-]*\w")
_FILLERS = frozenset(STOPWORDS_EN) | {"am", "buy", "find", "get", "i", "looking", "me", "need", "please", "show", "want", "which"}


def careful_shopper(instruction: str) -> Shopper:
    """Search by the words of the instruction, look at the results that share most of them and are cheap enough, and buy the first
    that has every option asked for, else the one that has most.
    """
    observation = yield f"search[{' '.join(_request_words(instruction))}]"
    candidates = _candidates(observation, instruction)[:_VISITS]
    lacking = []
    for asin in candidates:
        observation = yield f"click[{asin}]"
        values, missing = _choices(observation, instruction)
        if not missing:
            yield from _buy(values)
        lacking.append(missing)
        yield "click[< prev]"
    if candidates:
        observation = yield f"click[{candidates[int(np.argmin(lacking))]}]"
        yield from _buy(_choices(observation, instruction)[0])


def random_shopper(instruction: str, random: np.random.Generator) -> Shopper:
    """Any of the available actions; searches for three words of the instruction."""
    observation = yield _random_search(instruction, random)
    while True:
        actions = [f"click[{text}]" for text in _links(observation)]
        observation = yield actions[random.integers(len(actions))] if actions else _random_search(instruction, random)


def _buy(values: list[str]) -> Shopper:
    for value in values:
        yield f"click[{value}]"
    yield "click[buy now]"


def _candidates(observation: str, instruction: str) -> list[str]:
    """The products of a page of results, most promising first."""
    limit = float(match[1]) if (match := _LIMIT.search(instruction)) else np.inf
    words = set(_request_words(instruction))
    links, texts = _links(observation), _texts(observation)
    ranked = []
    for position, text in enumerate(texts[:-2]):
        if text.lower() in links and (prices := _PRICE.findall(texts[position + 2])):
            shared = len(words & set(_words(texts[position + 1])))
            ranked.append((float(prices[-1]) > limit, -shared, position, text.lower()))
    return [asin for *_, asin in sorted(ranked)]


def _choices(observation: str, instruction: str) -> tuple[list[str], int]:
    """The values of an item's options that the instruction names, and how many options it names that the item does not have."""
    request = " ".join(_LIMIT.sub("", instruction).lower().split()) + ","
    links = _links(observation)
    values: list[str] = []
    name = ""
    for text in map(str.lower, _texts(observation)):
        if text not in links:
            name = text
        elif f" {name}: {text}," in request or (
            f" {name}: " not in request and re.search(rf"(?<!\w){re.escape(text)}(?!\w)", request)
        ):
            values.append(text)
    return values, request.count(": ") - len(values)


def _request_words(instruction: str) -> list[str]:
    return [word for word in _words(_LIMIT.sub("", instruction)) if word not in _FILLERS]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _links(observation: str) -> list[str]:
    return _CLICKABLE.findall(observation.partition(_ACTIONS)[2])


def _texts(observation: str) -> list[str]:
    return observation.partition(_ACTIONS)[0].split(SEPARATOR)


def _random_search(instruction: str, random: np.random.Generator) -> str:
    return f"search[{' '.join(random.choice(_request_words(instruction), size=3))}]"
