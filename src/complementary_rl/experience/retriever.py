"""Retrieval on an open bank: query vectors, pools, choices, and the counting that training does.

    texts ── cache, keys of the bank, embedder ─→ vectors ── snapshot of the index ─→ near keys ── lock ─→ pools ─→ choices
                                                                                                              lock: count, texts

Equal texts are embedded and searched once. The lock is held for work on the pools and never for a matrix product or an embedding.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from complementary_rl.config import RetrievalConfig
from complementary_rl.experience.embedding import CachedEmbedder, Vectors, vector_from_blob
from complementary_rl.experience.live import Pools
from complementary_rl.experience.near_keys import KeySnapshot, NearKeys
from complementary_rl.experience.records import storable
from complementary_rl.experience.retrieval import Choice, Query, Retrieved, choose, deal, trim
from complementary_rl.experience.state import BankState
from complementary_rl.seeds import derive_seed

_ROWS = 100
"""Rows written by one statement."""


class _Search(NamedTuple):
    """What queries have in common that are searched for once."""

    text: str
    scope: str
    size: int


class Retriever:
    """What `Bank.choose`, `Bank.hand_out` and `Bank.search_text` do."""

    def __init__(self, state: BankState, embedder: CachedEmbedder) -> None:
        self._state = state
        self._embedder = embedder

    def choose(self, queries: Sequence[Query], *, step: int, config: RetrievalConfig, training: bool) -> list[list[Choice]]:
        """See `Bank.choose`."""
        wanted = [_Search(query.text, query.scope, query.wanted * config.pool_factor) for query in queries]
        searches = list(dict.fromkeys(wanted))
        vectors = self._query_vectors([search.text for search in searches])
        place = {search: i for i, search in enumerate(searches)}
        places = [place[search] for search in wanted]
        scopes, sizes = [search.scope for search in searches], [search.size for search in searches]
        with self._state.snapshot(None if config.cross_task else scopes) as keys:
            pools = self._pools(keys.search(vectors, scopes, sizes, floor=config.min_similarity), sizes, config)
            chosen = choose(
                pools.take(places),
                [query.wanted for query in queries],
                config,
                seeds=[query.seed for query in queries],
                step=step,
                training=training,
            )
            short = [n for n, (query, choices) in enumerate(zip(queries, chosen, strict=True)) if len(choices) < query.wanted]
            if config.cross_task and short:
                others = list(dict.fromkeys(places[n] for n in short))
                elsewhere = self._pools_elsewhere(
                    keys, vectors[others], [scopes[i] for i in others], [sizes[i] for i in others], config
                )
                more = choose(
                    elsewhere.take([others.index(places[n]) for n in short]),
                    [queries[n].wanted - len(chosen[n]) for n in short],
                    config,
                    seeds=[derive_seed(queries[n].seed, "elsewhere") for n in short],
                    step=step,
                    training=training,
                )
                for n, choices in zip(short, more, strict=True):
                    chosen[n] += choices
        return chosen

    def hand_out(
        self, queries: Sequence[Query], chosen: Sequence[Sequence[Choice]], *, step: int, training: bool
    ) -> list[list[list[Retrieved]]]:
        """See `Bank.hand_out`."""
        with self._state.lock:
            known = {
                entry_id: (text, step - created if training and not retrieved else None)
                for entry_id, text, created, retrieved in self._rows({choice.entry_id for choices in chosen for choice in choices})
            }
            if training:
                self._count(queries, chosen, step)
        return [
            [
                [Retrieved(c.entry_id, known[c.entry_id][0], c.similarity, c.score, known[c.entry_id][1]) for c in hand]
                for hand in hands
            ]
            for hands in (deal(choices, query.sets) for query, choices in zip(queries, chosen, strict=True))
        ]

    def nearest(self, text: str, limit: int) -> list[tuple[int, float]]:
        """(entry id, cosine) of the live entries nearest to a text in all scopes."""
        vectors = self._query_vectors([text])
        with self._state.snapshot(None) as keys:
            found = keys.search_elsewhere(vectors, [None], [limit], floor=-1.0)
        with self._state.lock:
            nearest = self._state.live.pools(found, [limit]).candidates
        return list(zip(nearest.ids.tolist(), nearest.similarity.tolist(), strict=True))[:limit]

    def _query_vectors(self, texts: Sequence[str]) -> Vectors:
        """Vectors of queries, [len(texts), d]. A text that is a key of the bank has the stored vector, bit for bit."""
        found = self._embedder.known(texts)
        missing = [text for text in dict.fromkeys(texts) if text not in found]
        if missing:
            stored: dict[str, Vectors] = {}
            with self._state.lock:
                for text in missing:
                    rows = self._state.store.rows("SELECT vector FROM keys WHERE text = ?", (storable(text),))
                    if rows:
                        stored[text] = vector_from_blob(rows[0][0])
            self._embedder.keep(stored)
            unknown = [text for text in missing if text not in stored]
            found |= stored
            if unknown:
                found.update(zip(unknown, self._embedder.embed(unknown), strict=True))
        return np.stack([found[text] for text in texts]) if texts else np.zeros((0, 0), dtype=np.float32)

    def _pools(self, keys: NearKeys, sizes: Sequence[int], config: RetrievalConfig) -> Pools:
        with self._state.lock:
            pools = self._state.live.pools(keys, sizes)
        return trim(pools, sizes, config)

    def _pools_elsewhere(
        self, keys: KeySnapshot, vectors: Vectors, own: Sequence[str], sizes: Sequence[int], config: RetrievalConfig
    ) -> Pools:
        """The pools of queries, each in all scopes but its own, without what is blocked there."""
        with self._state.lock:
            blocked = [list(self._state.routing.blocked(scope)) if config.contamination_guard else [] for scope in own]
        # What is blocked takes nobody's place: the search goes that much further.
        wanted = [size + len(entries) for size, entries in zip(sizes, blocked, strict=True)]
        found = keys.search_elsewhere(vectors, own, wanted, floor=max(config.min_similarity, config.cross_task_floor))
        with self._state.lock:
            pools = self._state.live.pools(found, wanted)
        if any(blocked):
            kept = np.ones(len(pools.owner), dtype=bool)
            for number, entries in enumerate(blocked):
                part = pools.part(number)
                kept[part] = ~np.isin(pools.candidates.ids[part], entries)
            pools = pools.keep(kept)
        return trim(pools, sizes, config)

    def _count(self, queries: Sequence[Query], chosen: Sequence[Sequence[Choice]], step: int) -> None:
        with self._state.transaction():
            step = self._state.tick(step)
            times = Counter(choice.entry_id for choices in chosen for choice in choices)
            # Few statements: SQLite gives the interpreter's lock away at each, and with other threads it is long in coming back.
            self._state.store.run(
                "UPDATE entries SET retrieved = retrieved + times, last_retrieved_step = ? "
                "FROM (SELECT value ->> 0 AS entry, value ->> 1 AS times FROM json_each(?)) WHERE id = entry",
                (step, json.dumps(list(times.items()))),
            )
            taken = [
                (step, choice.entry_id, query.scope, choice.similarity, choice.score)
                for query, choices in zip(queries, chosen, strict=True)
                for choice in choices
            ]
            for start in range(0, len(taken), _ROWS):
                rows = taken[start : start + _ROWS]
                values = ", ".join(["(?, ?, ?, ?, ?)"] * len(rows))
                self._state.store.run(
                    f"INSERT INTO retrievals (step, entry_id, scope, similarity, score) VALUES {values}",
                    [value for row in rows for value in row],
                )
            for entry_id, number in times.items():
                self._state.live.count_retrieved(entry_id, step, number)

    def _rows(self, ids: Iterable[int]) -> list[tuple[int, str, int, int]]:
        """(id, text, step of creation, times retrieved) of entries."""
        return self._state.store.rows(
            "SELECT id, text, created_step, retrieved FROM entries WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps(list(ids)),),
        )
