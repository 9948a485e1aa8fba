"""Retrieval on an open bank: query vectors, pools, choices, and the counting that training does."""

from collections.abc import Iterable, Sequence

import numpy as np

from complementary_rl.config import RetrievalConfig
from complementary_rl.experience.embedding import Embedder, Vectors
from complementary_rl.experience.records import storable
from complementary_rl.experience.retrieval import Choice, Query, Retrieved, choose, deal, trim
from complementary_rl.experience.state import BankState
from complementary_rl.seeds import derive_seed


class Retriever:
    """What `Bank.retrieve` and `Bank.search_text` do."""

    def __init__(self, state: BankState, embedder: Embedder) -> None:
        self._state = state
        self._embedder = embedder

    def retrieve(
        self, queries: Sequence[Query], *, step: int, config: RetrievalConfig, training: bool
    ) -> list[list[list[Retrieved]]]:
        """See `Bank.retrieve`. Embedding happens outside the bank's lock."""
        vectors = self._query_vectors([query.text for query in queries])
        with self._state.lock:
            chosen = self._choose(queries, vectors, step, config, training)
            if training:
                self._count(queries, chosen, step)
            texts = self._texts({choice.entry_id for choices in chosen for choice in choices})
        return [
            [[Retrieved(c.entry_id, texts[c.entry_id], c.similarity, c.score) for c in hand] for hand in deal(choices, query.sets)]
            for query, choices in zip(queries, chosen, strict=True)
        ]

    def nearest(self, text: str, limit: int) -> list[tuple[int, float]]:
        """(entry id, cosine) of the live entries nearest to a text in all scopes."""
        vector = self._query_vectors([text])[0]
        with self._state.lock:
            pool = self._state.live.search_elsewhere(vector, None, limit, floor=-1.0)
        return list(zip(pool.ids.tolist(), pool.similarity.tolist(), strict=True))[:limit]

    def _query_vectors(self, texts: Sequence[str]) -> Vectors:
        """Vectors of queries, [len(texts), d]. A text that is a key of the bank has the stored vector, bit for bit."""
        found: dict[str, Vectors] = {}
        with self._state.lock:
            for text in dict.fromkeys(texts):
                rows = self._state.store.rows("SELECT vector FROM keys WHERE text = ?", (storable(text),))
                if rows:
                    found[text] = np.frombuffer(rows[0][0], dtype="<f4")
        unknown = [text for text in dict.fromkeys(texts) if text not in found]
        if unknown:
            found.update(zip(unknown, self._embedder.embed(unknown), strict=True))
        return np.stack([found[text] for text in texts]) if texts else np.zeros((0, 0), dtype=np.float32)

    def _choose(
        self, queries: Sequence[Query], vectors: Vectors, step: int, config: RetrievalConfig, training: bool
    ) -> list[list[Choice]]:
        floor = config.min_similarity
        sizes = [query.wanted * config.pool_factor for query in queries]
        live = self._state.live
        pools = live.search(vectors, [query.scope for query in queries], sizes, floor=floor)
        chosen = []
        for query, vector, size, pool in zip(queries, vectors, sizes, pools, strict=True):
            choices = choose(trim(pool, size, config), query.wanted, config, seed=query.seed, step=step, training=training)
            missing = query.wanted - len(choices)
            if missing and config.cross_task:
                others = live.search_elsewhere(vector, query.scope, size, floor=floor)
                seed = derive_seed(query.seed, "elsewhere")
                choices += choose(trim(others, size, config), missing, config, seed=seed, step=step, training=training)
            chosen.append(choices)
        return chosen

    def _count(self, queries: Sequence[Query], chosen: Sequence[Sequence[Choice]], step: int) -> None:
        with self._state.transaction():
            step = self._state.tick(step)
            for query, choices in zip(queries, chosen, strict=True):
                for choice in choices:
                    self._state.store.run(
                        "UPDATE entries SET retrieved = retrieved + 1, last_retrieved_step = ? WHERE id = ?",
                        (step, choice.entry_id),
                    )
                    self._state.store.run(
                        "INSERT INTO retrievals (step, entry_id, scope, similarity, score) VALUES (?, ?, ?, ?, ?)",
                        (step, choice.entry_id, query.scope, choice.similarity, choice.score),
                    )
                    self._state.live.count_retrieved(choice.entry_id, step)

    def _texts(self, ids: Iterable[int]) -> dict[int, str]:
        wanted = list(ids)
        marks = ", ".join("?" * len(wanted))
        return dict(self._state.store.rows(f"SELECT id, text FROM entries WHERE id IN ({marks})", wanted))
