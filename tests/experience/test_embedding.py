"""Embedders: unit rows, the same in every process, telling names apart."""

import subprocess
import sys
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from complementary_rl.errors import UserError
from complementary_rl.experience.embedding import CachedEmbedder, HashingEmbedder, SentenceTransformerEmbedder, make_embedder

AMBER, CRIMSON = "Find the exit of the Amber Gallery.", "Find the exit of the Crimson Vault."


def cosine(first: str, second: str) -> float:
    rows = HashingEmbedder().embed([first, second])
    return float(rows[0] @ rows[1])


def test_descriptions_that_name_another_place_are_far_apart():
    assert cosine(AMBER, CRIMSON) < 0.6
    assert cosine(AMBER, "Find the exit of the Crimson Gallery.") < 0.8


def test_wording_case_and_punctuation_hardly_matter():
    assert cosine(AMBER, "find the exit of the amber gallery") == pytest.approx(1.0)
    assert cosine(AMBER, "Where is the exit in the Amber Gallery?") > 0.75


def test_the_question_finds_its_place_among_many():
    places = [f"Find the exit of the {a} {n}." for a in ("Amber", "Crimson", "Old", "Grey") for n in ("Gallery", "Vault", "Den")]
    rows = HashingEmbedder().embed(places)
    question = HashingEmbedder().embed(["which corner of the Old Den has the exit"])[0]
    assert places[int(np.argmax(rows @ question))] == "Find the exit of the Old Den."


@given(st.lists(st.text(), max_size=5))
def test_any_texts_become_unit_rows_whatever_stands_beside_them(texts):
    embedder = HashingEmbedder()
    rows = embedder.embed(texts)
    assert rows.shape == (len(texts), 256)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-6)
    for text, row in zip(texts, rows, strict=True):
        np.testing.assert_array_equal(embedder.embed([text])[0], row)


def test_vectors_do_not_depend_on_the_process():
    script = (
        "from complementary_rl.experience.embedding import HashingEmbedder; "
        f"print(HashingEmbedder().embed([{AMBER!r}]).tobytes().hex())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert outputs == {HashingEmbedder().embed([AMBER]).tobytes().hex()}


def test_texts_without_words_are_told_apart():
    assert cosine("!!!", "???") < 0.9
    assert cosine("😀", "😀") == pytest.approx(1.0)


class Counting:
    name, dimensions = "counting", 2

    def __init__(self):
        self.batches = []

    def embed(self, texts):
        self.batches.append(list(texts))
        return np.array([[len(text), 1.0] for text in texts], dtype=np.float32)


def test_the_cache_embeds_each_text_once_in_one_batch():
    inner = Counting()
    cached = CachedEmbedder(inner)
    rows = cached.embed(["a", "bb", "a"])
    assert rows[:, 0].tolist() == [1, 2, 1]
    assert cached.embed(["bb", "ccc"])[:, 0].tolist() == [2, 3]
    assert inner.batches == [["a", "bb"], ["ccc"]]
    assert cached.misses == 3
    assert cached.embed([]).shape == (0, 2)


def test_the_cache_forgets_the_least_recently_used():
    inner = Counting()
    cached = CachedEmbedder(inner, size=2)
    cached.embed(["a", "bb"])
    cached.embed(["a"])
    cached.embed(["ccc"])
    cached.embed(["a"])
    cached.embed(["bb"])
    assert inner.batches == [["a", "bb"], ["ccc"], ["bb"]]


def test_a_batch_larger_than_the_cache_still_comes_back_whole():
    assert CachedEmbedder(Counting(), size=1).embed(["a", "bb", "ccc"])[:, 0].tolist() == [1, 2, 3]


def test_make_embedder_names_what_the_configuration_named():
    assert make_embedder("hashing").name == "hashing"
    assert make_embedder("some/model").name == "some/model"


def test_a_missing_library_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(UserError, match=r"complementary-rl\[embeddings\]"):
        make_embedder("some/model").embed(["x"])


def test_a_model_that_cannot_be_loaded_is_explained(monkeypatch):
    def fail(name):
        raise OSError("no such repository")

    monkeypatch.setitem(sys.modules, "sentence_transformers", types.SimpleNamespace(SentenceTransformer=fail))
    with pytest.raises(UserError, match=r"'some/model'.*no such repository.*hashing"):
        SentenceTransformerEmbedder("some/model").embed(["x"])


def test_sentence_transformers_are_asked_for_unit_vectors_and_loaded_once(monkeypatch):
    loaded = []

    class Model:
        def __init__(self, name):
            loaded.append(name)

        def encode(self, texts, *, normalize_embeddings, show_progress_bar, convert_to_numpy):
            assert normalize_embeddings
            assert convert_to_numpy
            return np.eye(3, dtype=np.float64)[: len(texts)]

    monkeypatch.setitem(sys.modules, "sentence_transformers", types.SimpleNamespace(SentenceTransformer=Model))
    embedder = SentenceTransformerEmbedder("some/model")
    assert loaded == []
    assert embedder.embed(["a", "b"]).dtype == np.float32
    assert embedder.dimensions == 3
    assert embedder.embed([]).shape == (0, 3)
    assert loaded == ["some/model"]
