"""Text → unit vectors. The built-in `HashingEmbedder` needs no download; sentence-transformers models are used by name or path."""

import hashlib
import re
import threading
import unicodedata
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from complementary_rl.errors import UserError
from complementary_rl.models.names import resolve
from complementary_rl.types import Metrics

Vectors = NDArray[np.float32]

_WORD = re.compile(r"\w+")

_STOP_WORDS = frozenset(
    _WORD.findall(
        """a an and are as at be been but by can do does for from had has have how i if in into is it its me my not of off on or our
        out so than that the their them then there these they this those to up us was we were what when where which who why will
        with you your"""
    )
)

# Weights were set so that descriptions which share a template but name another place stay under 0.6: see docs/bank.md.
_STOP_WEIGHT = 0.15
_BIGRAM_WEIGHT = 1.0
_NGRAM_WEIGHT = 0.5
_FULL_LENGTH = 6
"""Words of at least this many characters count fully. Shorter ones are more frequent (Zipf), so length stands in for rarity."""
_LEAST_WEIGHT = 0.6
_CACHED_WORDS = 50_000


class Embedder(Protocol):
    """What the bank needs of an embedding model."""

    @property
    def name(self) -> str:
        """Stored in the bank, which refuses to mix vectors of different embedders."""
        ...

    @property
    def dimensions(self) -> int:
        """d, the length of a vector."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Unit rows, float32 [len(texts), d]; a text's row is the same in every process."""
        ...


class HashingEmbedder:
    """Signed feature hashing of words, word pairs and the character 3-grams of words, compared ignoring case.

    Knows no synonyms; it tells texts apart by their wording, which is what recurring task descriptions need. About 30,000 short
    texts a second on one core.
    """

    def __init__(self, dimensions: int = 256) -> None:
        assert dimensions >= 8
        self._dimensions = dimensions
        self._words: dict[str, tuple[float, list[int], list[float]]] = {}

    @property
    def name(self) -> str:
        return "hashing" if self._dimensions == 256 else f"hashing-{self._dimensions}"

    @property
    def dimensions(self) -> int:
        return self._dimensions

    def embed(self, texts: Sequence[str]) -> Vectors:
        slots: list[int] = []
        values: list[float] = []
        for row, text in enumerate(texts):
            before = len(slots)
            self._add_features(text, row * self._dimensions, slots, values)
            if len(slots) == before:  # nothing but signs, or nothing at all
                slots.append(row * self._dimensions + _hash(text) % self._dimensions)
                values.append(1.0)
        size = len(texts) * self._dimensions
        sums = np.bincount(np.array(slots, dtype=np.int64), weights=np.array(values, dtype=np.float64), minlength=size)
        return _unit_rows(sums.reshape(len(texts), self._dimensions).astype(np.float64, copy=False))

    def _add_features(self, text: str, offset: int, slots: list[int], values: list[float]) -> None:
        previous, previous_weight = "", 0.0
        for word in _WORD.findall(unicodedata.normalize("NFKC", text).casefold()):
            weight, word_slots, word_values = self._word(word)
            slots += [offset + slot for slot in word_slots]
            values += word_values
            if previous:
                slot, sign = self._place(f"{previous} {word}")
                slots.append(offset + slot)
                values.append(sign * _BIGRAM_WEIGHT * min(previous_weight, weight))
            previous, previous_weight = word, weight

    def _word(self, word: str) -> tuple[float, list[int], list[float]]:
        """Weight, slots and signed values of a word and its 3-grams; texts repeat words, so this is cached."""
        known = self._words.get(word)
        if known is not None:
            return known
        weight = _STOP_WEIGHT if word in _STOP_WORDS else min(1.0, max(_LEAST_WEIGHT, len(word) / _FULL_LENGTH))
        slots, values = [], []
        slot, sign = self._place(word)
        slots.append(slot)
        values.append(sign * weight)
        if word not in _STOP_WORDS:
            padded = f"<{word}>"
            ngrams = [padded[i : i + 3] for i in range(len(padded) - 2)]
            for ngram in ngrams:
                slot, sign = self._place(f"#{ngram}")
                slots.append(slot)
                values.append(sign * weight * _NGRAM_WEIGHT / len(ngrams) ** 0.5)
        if len(self._words) >= _CACHED_WORDS:
            self._words.clear()
        self._words[word] = weight, slots, values
        return self._words[word]

    def _place(self, feature: str) -> tuple[int, float]:
        hashed = _hash(feature)
        return (hashed >> 1) % self._dimensions, 1.0 if hashed & 1 else -1.0


class SentenceTransformerEmbedder:
    """A sentence-transformers model by its name as in `models.names`, loaded when first used (importing the library takes seconds)."""

    def __init__(self, model: str) -> None:
        self._model_name = model
        self._model: Any = None

    @property
    def name(self) -> str:
        return self._model_name

    @property
    def dimensions(self) -> int:
        return len(self.embed(["d"])[0])

    def embed(self, texts: Sequence[str]) -> Vectors:
        if not texts:
            return np.zeros((0, self.dimensions), dtype=np.float32)
        rows = self._load().encode(list(texts), normalize_embeddings=True, show_progress_bar=False, convert_to_numpy=True)
        return np.ascontiguousarray(rows, dtype=np.float32)

    def _load(self) -> Any:
        """Raises UserError when the library is missing or the model cannot be loaded."""
        if self._model is None:
            try:
                from sentence_transformers import SentenceTransformer
            except ImportError as error:
                raise UserError(
                    f"bank.embedder is {self._model_name!r}, a sentence-transformers model: install the extra with "
                    "`pip install 'complementary-rl[embeddings]'`, or use the built-in embedder `hashing`"
                ) from error
            folder = resolve(self._model_name)
            try:
                self._model = SentenceTransformer(folder)
            except Exception as error:  # the library raises whatever its hub client, tokenizer or weight reader raises
                raise UserError(
                    f"bank.embedder: cannot load the sentence-transformers model {self._model_name!r} ({error}); "
                    "give a hub name that can be reached, a folder that holds one, packaged:minilm, or `hashing`"
                ) from error
        return self._model


class CachedEmbedder:
    """Keeps the vectors of the last `size` different texts (groups share a description). Safe to use from several threads.

    A cache belongs to one embedder, so a text is never given the vector of another. The model embeds for one thread at a time (few can
    do otherwise); who finds all texts in the cache does not wait for it.
    """

    def __init__(self, inner: Embedder, size: int = 16_384) -> None:
        assert size >= 1
        self._inner = inner
        self._size = size
        self._rows: OrderedDict[str, Vectors] = OrderedDict()
        self._lock = threading.Lock()
        self._model = threading.Lock()
        self.hits = 0
        """Different texts, call by call, whose vector was there."""
        self.misses = 0
        """Texts the inner embedder had to embed."""

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def dimensions(self) -> int:
        return self._inner.dimensions

    def embed(self, texts: Sequence[str]) -> Vectors:
        found = self.known(texts)
        if len(found) < len(set(texts)):
            with self._model:
                # Another thread may have embedded some of them while this one waited for the model.
                found |= self.known([text for text in dict.fromkeys(texts) if text not in found])
                missing = [text for text in dict.fromkeys(texts) if text not in found]
                if missing:
                    found.update(zip(missing, self._inner.embed(missing), strict=True))
                self._remember(found, misses=len(missing))
        if not texts:
            return np.zeros((0, self.dimensions), dtype=np.float32)
        return np.stack([found[text] for text in texts])

    def known(self, texts: Iterable[str]) -> dict[str, Vectors]:
        """The vectors of those texts that are cached."""
        with self._lock:
            found = {text: self._rows[text] for text in texts if text in self._rows}
            for text in found:
                self._rows.move_to_end(text)
            self.hits += len(found)
        return found

    def take_metrics(self) -> Metrics:
        """`embedded_texts` and `embedding_hit_share` since the last call; without the share if nothing was asked for."""
        with self._lock:
            hits, misses, self.hits, self.misses = self.hits, self.misses, 0, 0
        return {"embedded_texts": float(misses), **({"embedding_hit_share": hits / (hits + misses)} if hits + misses else {})}

    def keep(self, rows: Mapping[str, Vectors]) -> None:
        """Cache vectors that were stored elsewhere; they count as hits."""
        self._remember(rows, hits=len(rows))

    def _remember(self, rows: Mapping[str, Vectors], *, hits: int = 0, misses: int = 0) -> None:
        with self._lock:
            self.hits += hits
            self.misses += misses
            for text, row in rows.items():
                self._rows[text] = row
                self._rows.move_to_end(text)
            while len(self._rows) > self._size:
                self._rows.popitem(last=False)


def vector_to_blob(vector: Vectors) -> bytes:
    """As a bank's file keeps it."""
    return vector.astype("<f4").tobytes()


def vector_from_blob(blob: bytes) -> Vectors:
    """The vector [d] that `vector_to_blob` was given."""
    return np.frombuffer(blob, dtype="<f4")


def text_vectors(embedder: Embedder, rows: Sequence[tuple[str, bytes | None]]) -> list[Vectors]:
    """The vector of each text, from its blob where one was kept; the rest are embedded in one call."""
    unknown = list(dict.fromkeys(text for text, blob in rows if blob is None))
    embedded = dict(zip(unknown, embedder.embed(unknown), strict=True)) if unknown else {}
    return [embedded[text] if blob is None else vector_from_blob(blob) for text, blob in rows]


def make_embedder(name: str) -> CachedEmbedder:
    """The embedder `bank.embedder` names, cached: "hashing", or a sentence-transformers model."""
    return CachedEmbedder(HashingEmbedder() if name == "hashing" else SentenceTransformerEmbedder(name))


def _hash(feature: str) -> int:
    # Python's own hash() of a string differs between processes.
    return int.from_bytes(hashlib.blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _unit_rows(rows: NDArray[np.float64]) -> Vectors:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    cancelled = norms[:, 0] < 1e-9
    rows[cancelled, 0] = norms[cancelled] = 1.0
    units: Vectors = (rows / norms).astype(np.float32)
    return units
