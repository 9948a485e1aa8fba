"""The original's data: every published form of it, the literature's split, and damaged files that are named with their record."""

import json
import lzma
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from complementary_rl.envs.checker import check_env
from complementary_rl.envs.webshop.catalogue import Product, Request, Review
from complementary_rl.envs.webshop.goals import Candidate, human_candidates, official_split, synthetic_candidates
from complementary_rl.envs.webshop.official import load_products
from complementary_rl.envs.webshop.suite import WebShop
from complementary_rl.errors import UserError

Folder = Callable[..., Path]


def item(asin: str, **changes: Any) -> dict[str, Any]:
    return {
        "asin": asin,
        "name": "Tin Whistle",
        "query": " Whistles ",
        "category": "music",
        "product_category": "Music › Wind ›  Whistles",
        "full_description": "It whistles.",
        "small_description": ["Loud.", "Small."],
        "pricing": "$1,009.50",
        "customization_options": {"Color": [{"value": " Red/Blue ", "image": None}, {"value": "Green"}], "Key": None},
        "images": ["x.jpg"],
    } | changes


ITEMS = [
    item("B1"),
    item("B1", name="The same again"),
    item("nan"),
    item("B2LONGERTHANTEN"),
    item("B3", pricing="$12.00 - $15.50", customization_options="", small_description="One point."),
    item("B4", pricing=None, customization_options=None),
]
ATTRIBUTES = {
    "B1": {"attributes": ["loud"], "instruction": "Find me loud whistles.", "instruction_attributes": ["loud"]},
    "B3": {"attributes": ["small"]},
}
HUMAN = {
    "B3": [
        {
            "instruction": "i want a tin whistle.",
            "instruction_attributes": ["tin"],
            "instruction_options": ["red"],
            "worker_id": "x",
        }
    ]
}
REVIEWS = [
    {
        "asin": "B1",
        "average_rating": 4.5,
        "reviews": [{"title": "Good", "stars": 5, "review": "Yes."}, {"title": "Old", "score": "1"}],
    }
]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """``folder(file=content, …)`` writes a data folder; content that is no text is written as JSON, and None leaves the file out."""

    def write(**changes: Any) -> Path:
        files = {"items_shuffle_1000.json": ITEMS, "items_ins_v2_1000.json": ATTRIBUTES} | changes
        for name, content in files.items():
            if isinstance(content, bytes):
                (tmp_path / name).write_bytes(content)
            elif content is not None:
                (tmp_path / name).write_text(json.dumps(content))
        return tmp_path

    return write


def test_records_become_products(folder: Folder) -> None:
    first, second, third = load_products(folder(**{"items_human_ins.json": HUMAN, "reviews.json": REVIEWS}), 1000)
    assert (first.asin, first.title, first.query, first.department) == ("B1", "Tin Whistle", "whistles", "music")
    assert first.category == ("Music", "Wind", "Whistles")
    assert (first.prices, first.price, first.price_tag) == ((1009.5,), 1009.5, "$1009.5")
    assert first.options == {"color": ("red | blue", "green")}
    assert first.bullets == ("Loud.", "Small.")
    assert first.attributes == ("loud",)
    assert first.indexed_text == "tin whistle it whistles. loud. color: red | blue, green"
    assert first.reviews == (Review("Good", "5", "Yes."), Review("Old", "1", ""))
    assert first.rating == "4.5"
    assert (second.asin, second.bullets, second.options) == ("B3", ("One point.",), {})
    assert (second.prices, second.price_tag, second.request) == ((12.0, 15.5), "$12.0 to $15.5", None)
    assert 12 < second.price < 15.5
    assert (third.asin, third.prices, third.attributes, third.rating) == ("B4", (100.0,), (), "N.A.")
    assert len(load_products(folder(), 2)) == 2


def test_goals_of_both_kinds(folder: Folder) -> None:
    products = load_products(folder(**{"items_human_ins.json": HUMAN}), 1000)
    made = [candidate.goal() for candidate in synthetic_candidates(products)]
    assert [goal.instruction for goal in made] == [
        "Find me loud whistles with color: red | blue",
        "Find me loud whistles with color: green",
    ]  # no price limit: there is no round sum to draw above 1,000 dollars
    (asked,) = [candidate.goal() for candidate in human_candidates(products)]
    assert asked.instruction.startswith("i want a tin whistle, and price lower than ")
    assert asked.instruction.endswith("0.00 dollars")
    assert (asked.attributes, asked.options) == (("tin",), (("", "red"),))


def test_documents_of_the_search_index_serve_as_products(folder: Folder) -> None:
    processed = item("B1", pricing=[12.0, 15.5], instructions=HUMAN["B3"], Title="Tin Whistle")
    lines = "\n".join(json.dumps({"id": "B1", "contents": "…", "product": processed}) for _ in range(2)).encode()
    for name, content in (("docs_1k.jsonl.xz", lzma.compress(lines)), ("documents.jsonl", lines)):
        path = folder(**{"items_shuffle_1000.json": None, name: content})
        (product,) = load_products(path, 1000)
        assert (product.prices, product.options) == ((12.0, 15.5), {"color": ("red | blue", "green")})
        assert product.human_requests[0].text == "i want a tin whistle."
        (path / name).unlink()


def test_the_split_of_the_literature() -> None:
    product = Product("B1", "x", "x", "x", (), "", (), (), {}, (1.0,))
    candidates = [Candidate(product, Request("x", ("a",)), number, (("n", f"{number}"),)) for number in range(2000)]
    order = list(range(2000))
    random.Random(233).shuffle(order)
    split = official_split(candidates)
    assert [candidate.number for candidate in split["test"] + split["dev"] + split["train"]] == order
    assert [len(split[name]) for name in ("test", "dev", "train")] == [500, 1000, 500]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"items_shuffle_1000.json": None}, "none of items_shuffle_1000.json"),
        ({"items_ins_v2_1000.json": None}, "none of items_ins_v2_1000.json"),
        ({"items_shuffle_1000.json": b"[{"}, "items_shuffle_1000.json: the file is not JSON"),
        ({"items_shuffle_1000.json": b"\xff\xfe"}, "items_shuffle_1000.json cannot be read"),
        ({"items_shuffle_1000.json": {}}, "must hold a list, not a dict"),
        ({"items_shuffle_1000.json": []}, "holds no products"),
        (
            {"items_shuffle_1000.json": [item("B1"), item("B2", name=None)]},
            "record 2: name: Input should be a valid string, not 'None'",
        ),
        ({"items_shuffle_1000.json": [{"asin": "B1"}]}, "record 1: name: Field required"),
        ({"items_shuffle_1000.json": ["B1"]}, "record 1: the record: "),
        ({"items_shuffle_1000.json": [item("B1", pricing="$1.2.3")]}, "record 1: pricing: "),
        (
            {"items_shuffle_1000.json": [item("B1", customization_options={"Color": [{"colour": "red"}]})]},
            "record 1: customization_options",
        ),
        ({"items_ins_v2_1000.json": []}, "an entry for each asin, not a list"),
        ({"items_ins_v2_1000.json": {"B1": {"attributes": "loud"}}}, "items_ins_v2_1000.json: B1: attributes: "),
        (
            {"items_human_ins.json": {"B1": [{"instruction": "x"}]}},
            "items_human_ins.json: B1: 0.instruction_attributes: Field required",
        ),
        ({"reviews.json": [{"reviews": []}]}, "reviews.json: record 1: asin: Field required"),
        ({"items_shuffle_1000.json": None, "docs_1k.jsonl.xz": b"no xz"}, "docs_1k.jsonl.xz cannot be read"),
        ({"items_shuffle_1000.json": None, "documents.jsonl": b'{"product": {}}\n{'}, "line 1: asin: Field required"),
        ({"items_shuffle_1000.json": None, "documents.jsonl": b"{"}, "documents.jsonl: line 1 is not JSON"),
        ({"items_shuffle_1000.json": None, "documents.jsonl": b"[]"}, "line 1 must be an object with a 'product'"),
    ],
)
def test_damaged_data_is_named_with_file_record_and_cause(folder: Folder, changes: dict[str, Any], words: str) -> None:
    path = folder(**changes)
    with pytest.raises(UserError) as caught:
        load_products(path, 1000)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_folder_and_too_little_data(folder: Folder, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no folder .*nowhere; `data` is the folder that holds items_shuffle_1000.json"):
        WebShop(str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"2 goals are too few.*full data"):
        WebShop(str(folder()))


@pytest.fixture(scope="module")
def shared() -> str:
    if "CRL_SHARED_DATA" not in os.environ:
        pytest.skip("CRL_SHARED_DATA names no folder with the original's data")
    return str(Path(os.environ["CRL_SHARED_DATA"]) / "webshop")


def test_the_original_small_set(shared: str) -> None:
    products = load_products(Path(shared), 1000)
    candidates = synthetic_candidates(products)
    # The literature's numbers for the set of 1,000 products.
    assert (len(products), len(candidates)) == (1000, 6910)
    assert len(official_split(candidates)["train"]) == 5410
    assert len(human_candidates(products)) == 13
    suite = WebShop(shared, train_tasks=100)
    assert (len(suite.tasks("train")), len(suite.tasks("heldout"))) == (100, 500)
    report = check_env(suite, episodes=4)
    assert report.ok, str(report)
    with pytest.raises(UserError, match="13 goals are too few"):
        WebShop(shared, goals="human")
