"""How records look on disk: entries as rows, generations as compact blobs, texts cleaned and fingerprinted."""

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from complementary_rl.types import Entry, EntryStats, Generation

STATS = "e.retrieved, e.shown, e.successes, e.failures, e.votes, e.trained, e.last_retrieved_step, e.last_trained_update"

SELECT_ENTRIES = f"""
    SELECT e.id, e.text, k.text, e.scope, e.created_step, e.generation_id, e.retired_step,
           (SELECT group_concat(parent) FROM lineage WHERE child = e.id), {STATS}
    FROM entries e JOIN keys k ON k.id = e.key_id"""
"""Rows for `entry_from_row`; add WHERE and ORDER BY."""

SELECT_LIVE = f"SELECT e.id, e.scope, e.key_id, e.created_step, {STATS} FROM entries e WHERE e.retired_step IS NULL ORDER BY e.id"

_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One line of the operation log.

    `kind`: add, update, merge, drop, evict, return or revert, and `vote` (a duplicate was added to the votes of an entry) or
    `refuse`. `payload` (which keys are there depends on the kind): entry, text, key, scope, parents, generation, retired, base, cut,
    asked, reason, reverted, revived. `reverted_by`: the operation that undid it, if one did.
    """

    id: int
    step: int
    kind: str
    payload: dict[str, Any]
    reverted_by: int | None = None


def entry_from_row(row: Any) -> Entry:
    entry_id, text, key_text, scope, created, generation_id, retired, parents, *stats = row
    lineage = tuple(sorted(int(parent) for parent in parents.split(","))) if parents else ()
    return Entry(entry_id, text, key_text, scope, created, lineage, generation_id, EntryStats(*stats), retired)


def generation_to_row(generation: Generation) -> tuple[Any, ...]:
    exact = np.array(generation.logprobs, dtype="<f8")
    compact = exact.astype("<f4")
    logprobs = compact if np.array_equal(compact.astype("<f8"), exact) else exact
    return (
        generation.id,
        generation.model,
        generation.version,
        np.array(generation.prompt_ids, dtype="<i4").tobytes(),
        np.array(generation.token_ids, dtype="<i4").tobytes(),
        logprobs.tobytes(),
        generation.stop_reason,
        generation.temperature,
    )


def generation_from_row(row: Any) -> Generation:
    generation_id, model, version, prompt_ids, token_ids, logprobs, stop_reason, temperature = row
    # As many log-probabilities as tokens: the size tells the type.
    kind = "<f4" if len(logprobs) == len(token_ids) else "<f8"
    return Generation(
        id=generation_id,
        model=model,
        version=version,
        prompt_ids=tuple(np.frombuffer(prompt_ids, dtype="<i4").tolist()),
        token_ids=tuple(np.frombuffer(token_ids, dtype="<i4").tolist()),
        logprobs=tuple(np.frombuffer(logprobs, dtype=kind).tolist()),
        stop_reason=stop_reason,
        temperature=temperature,
    )


def storable(text: str) -> str:
    """`text` with surrogates paired up and lone ones, which no file can hold, replaced; anything else is left as it is."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def fingerprint(text: str) -> bytes:
    """Equal for texts that differ in case, spacing or Unicode form only."""
    plain = _SPACE.sub(" ", unicodedata.normalize("NFKC", text).casefold()).strip()
    return hashlib.blake2b(plain.encode(), digest_size=16).digest()


def combined(stats: Sequence[EntryStats]) -> EntryStats:
    """Statistics a merged entry starts with: what its parents were shown counts for it. Its own generation was never trained."""
    return EntryStats(
        retrieved=sum(s.retrieved for s in stats),
        shown=sum(s.shown for s in stats),
        successes=sum(s.successes for s in stats),
        failures=sum(s.failures for s in stats),
        votes=sum(s.votes for s in stats),
        last_retrieved_step=max((s.last_retrieved_step for s in stats), default=-1),
    )
