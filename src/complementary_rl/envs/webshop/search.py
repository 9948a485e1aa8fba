"""BM25 over the catalogue, set up as the original's Lucene index: English stop words, Porter stems, k1 = 0.9, b = 0.4."""

import re
from functools import lru_cache
from threading import Lock

import bm25s
import numpy as np
import snowballstemmer
from bm25s.stopwords import STOPWORDS_EN

from complementary_rl.envs.webshop.catalogue import Catalogue

MOST_RESULTS = 50
_WORD = re.compile(r"\w+(?:[.'’]\w+)*")
_STOP_WORDS = frozenset(STOPWORDS_EN)


class SearchEngine:
    """Finds products by words; may be used by many threads at once."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._stemmer = snowballstemmer.stemmer("porter")
        self._lock = Lock()
        self._stem = lru_cache(maxsize=1 << 16)(self._stem_anew)
        self._index = bm25s.BM25(k1=0.9, b=0.4, method="lucene")
        self._index.index([self._terms(product.indexed_text) for product in catalogue], show_progress=False)
        self._known: set[str] = set(self._index.vocab_dict)
        # Members of a group often search for the same words.
        self.search = lru_cache(maxsize=1 << 12)(self._search_anew)

    def _search_anew(self, words: str) -> tuple[int, ...]:
        """Positions in the catalogue, best first, at most 50; equal scores in the catalogue's order. Nothing in common: nothing."""
        terms = [term for term in self._terms(words.lower()) if term in self._known]
        if not terms:
            return ()
        scores = self._index.get_scores(terms)
        order = np.argsort(-scores, kind="stable")[:MOST_RESULTS]
        return tuple(int(position) for position in order if scores[position] > 0)

    def _terms(self, text: str) -> list[str]:
        return [self._stem(word.removesuffix("'s")) for word in _WORD.findall(text) if word not in _STOP_WORDS]

    def _stem_anew(self, word: str) -> str:
        # The stemmer keeps the word it works on in itself.
        with self._lock:
            stem: str = self._stemmer.stemWord(word)
        return stem
