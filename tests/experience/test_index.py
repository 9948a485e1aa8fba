"""The vector index against brute force, through any sequence of additions and removals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from complementary_rl.experience import index as index_module
from complementary_rl.experience.index import VectorIndex

D = 8


def unit(seed: int) -> np.ndarray:
    vector = np.random.default_rng(seed).normal(size=D)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def brute_force(content: dict[int, np.ndarray], query: np.ndarray, top: int, floor: float) -> list[tuple[int, float]]:
    scored = [(round(float(v.astype(np.float64) @ query.astype(np.float64)), 6), i) for i, v in content.items()]
    best = sorted(scored, key=lambda pair: (-pair[0], pair[1]))[:top]
    return [(i, similarity) for similarity, i in best if similarity >= floor]


def apply(index, content, ops):
    for kind, vector_id, seed in ops:
        if kind == "add" and vector_id not in content:
            index.add(vector_id, unit(seed))
            content[vector_id] = unit(seed)
        elif kind == "remove" and vector_id in content:
            index.remove(vector_id)
            del content[vector_id]


# Few distinct vectors, so that ties and cut-offs inside ties are common.
operations = st.lists(st.tuples(st.sampled_from(["add", "add", "remove"]), st.integers(0, 40), st.integers(0, 6)), max_size=80)


@given(operations, st.integers(0, 9), st.integers(1, 12), st.sampled_from([-1.0, 0.0, 0.5]))
@settings(max_examples=150, deadline=None)
def test_search_equals_brute_force(ops, query_seed, top, floor):
    index, content = VectorIndex(D), {}
    apply(index, content, ops)
    assert len(index) == len(content)
    queries = np.stack([unit(query_seed), unit(query_seed + 1)])
    for query, found in zip(queries, index.search(queries, top, floor), strict=True):
        expected = brute_force(content, query, top, floor)
        assert found.ids.tolist() == [i for i, _ in expected]
        np.testing.assert_allclose(found.similarity, [s for _, s in expected], atol=2e-6)


def test_a_rebuilt_index_answers_bit_for_bit_alike():
    first, second = VectorIndex(D), VectorIndex(D)
    for i in range(500):
        first.add(i, unit(i))
    for i in range(0, 500, 3):
        first.remove(i)
    for i in sorted(set(range(500)) - set(range(0, 500, 3)), reverse=True):
        second.add(i, unit(i))
    queries = np.stack([unit(1000 + i) for i in range(5)])
    alone = [second.search(query[None], 20)[0] for query in queries]
    for a, b, c in zip(first.search(queries, 20), second.search(queries, 20), alone, strict=True):
        assert a.ids.tolist() == b.ids.tolist() == c.ids.tolist()
        assert a.similarity.tobytes() == b.similarity.tobytes() == c.similarity.tobytes()


@pytest.mark.parametrize("top", [1, 50])
def test_an_identical_vector_has_similarity_one(top):
    index = VectorIndex(D)
    for i in range(20):
        index.add(i, unit(i))
    assert all(index.search(unit(i)[None], top, floor=1.0)[0].ids.tolist() == [i] for i in range(20))


def test_searching_an_empty_index_finds_nothing():
    found = VectorIndex(D).search(unit(0)[None], 5)[0]
    assert found.ids.tolist() == []


@given(operations, operations, st.integers(0, 9), st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_snapshot_stays_as_it_was_whatever_is_written(before, after, query_seed, release_first):
    index, content = VectorIndex(D), {}
    apply(index, content, before)
    snapshot, then = index.snapshot(), dict(content)
    apply(index, content, after[::2])
    later, then_later = index.snapshot(), dict(content)
    if release_first:
        snapshot.release()
    apply(index, content, after[1::2])
    query = unit(query_seed)
    seen = [(later, then_later), (index, content)] + ([] if release_first else [(snapshot, then)])
    for searched, expected in seen:
        [found] = searched.search(query[None], 5)
        assert found.ids.tolist() == [i for i, _ in brute_force(expected, query, 5, -1.0)]


def test_blocks_are_copied_for_a_live_snapshot_only(monkeypatch):
    monkeypatch.setattr(index_module, "_BLOCK", 32)
    index = VectorIndex(D)
    for i in range(100):
        index.add(i, unit(i))
    query = unit(7)[None]
    expected = index.search(query, 9)[0].ids.tolist()
    snapshot = index.snapshot()
    shared = list(index._blocks)
    for i in range(0, 100, 2):
        index.remove(i)
    for i in range(200, 260):
        index.add(i, unit(i))
    assert all(now is not then for now, then in zip(index._blocks, shared, strict=False))
    assert snapshot.search(query, 9)[0].ids.tolist() == expected
    snapshot.release()
    own = list(index._blocks)
    for i in range(1, 100, 2):
        index.remove(i)
    assert all(now is then for now, then in zip(index._blocks, own, strict=False))
    content = {i: unit(i) for i in range(200, 260)}
    assert index.search(query, 9)[0].ids.tolist() == [i for i, _ in brute_force(content, query[0], 9, -1.0)]
