"""Finding the live entry that says the same under the same key."""

from collections.abc import Collection

from complementary_rl.experience.embedding import Embedder, Vectors, text_vectors
from complementary_rl.experience.index import VectorIndex
from complementary_rl.experience.records import fingerprint
from complementary_rl.experience.store import BankStore


class Duplicates:
    """Identical texts (case, spacing and Unicode form aside) by an indexed fingerprint; near-identical ones, when `threshold` < 1,
    by the cosine of their embeddings, in one index per shelf that is filled when the shelf is first asked about."""

    def __init__(self, store: BankStore, embedder: Embedder, threshold: float) -> None:
        self._store = store
        self._embedder = embedder
        self._threshold = threshold
        self._texts: dict[tuple[str, int], VectorIndex] = {}

    def find(self, scope: str, key_id: int, text: str, ignoring: Collection[int] = ()) -> int | None:
        """The live entry of this shelf that `text` repeats: the oldest identical one, or the nearest at or above the threshold."""
        same = self._store.rows(
            "SELECT id FROM entries WHERE scope = ? AND key_id = ? AND fingerprint = ? AND retired_step IS NULL ORDER BY id",
            (scope, key_id, fingerprint(text)),
        )
        for (entry_id,) in same:
            if entry_id not in ignoring:
                return int(entry_id)
        if self._threshold >= 1.0:
            return None
        near = self._shelf(scope, key_id).search(self._embedder.embed([text]), 1 + len(ignoring), self._threshold)[0]
        return next((entry_id for entry_id in near.ids.tolist() if entry_id not in ignoring), None)

    def vector(self, text: str) -> Vectors | None:
        """What is stored with an entry so that it need not be embedded again; None when only identical texts count."""
        return None if self._threshold >= 1.0 else self._embedder.embed([text])[0]

    def added(self, scope: str, key_id: int, entry_id: int, vector: Vectors | None) -> None:
        shelf = self._texts.get((scope, key_id))
        if shelf is not None and vector is not None:
            shelf.add(entry_id, vector)

    def removed(self, scope: str, key_id: int, entry_id: int) -> None:
        shelf = self._texts.get((scope, key_id))
        if shelf is not None:
            shelf.remove(entry_id)

    def revived(self, scope: str, key_id: int) -> None:
        """A retired entry came back to this shelf, which is read again when it is next asked about."""
        self._texts.pop((scope, key_id), None)

    def forget(self) -> None:
        """Start over from the store."""
        self._texts.clear()

    def _shelf(self, scope: str, key_id: int) -> VectorIndex:
        known = self._texts.get((scope, key_id))
        if known is not None:
            return known
        rows = self._store.rows(
            "SELECT id, text, text_vector FROM entries WHERE scope = ? AND key_id = ? AND retired_step IS NULL", (scope, key_id)
        )
        # Without a blob are those that were written while the threshold was 1.
        vectors = text_vectors(self._embedder, [(text, blob) for _, text, blob in rows])
        shelf = VectorIndex(self._embedder.dimensions)
        for (entry_id, _, _), vector in zip(rows, vectors, strict=True):
            shelf.add(entry_id, vector)
        self._texts[scope, key_id] = shelf
        return shelf
