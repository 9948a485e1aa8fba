"""How entries are chosen from a pool of near ones: Eq 6 of the paper, and value-aware scoring. Pure functions on arrays.

Deviations from the paper, each with its reason:

1. s_rank(m) is 1 − (candidates strictly nearer than m) / pool size, in (0, 1], so that 1[recent] sends an entry below every one
   that is not recent and λ means the same for any pool. Entries that are equally similar (they share a key) share a rank.
2. Recency is counted in actor steps, not seconds: the wall clock must not decide what a run learns.
3. Nothing counts as recent in evaluation, which moves no counters.
4. Where more entries are as near as the last of the pool than it has room for, the paper does not say which belong to it: `trim`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from complementary_rl.config import RetrievalConfig
from complementary_rl.experience.live import Candidates
from complementary_rl.seeds import rng

Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Query:
    """What a group asks for: `sets` different sets of `k` entries about `text`, entries of `scope` first.

    `seed` is the query's own (derive it from what the query is for); equal seeds on equal banks choose alike.
    """

    text: str
    scope: str
    k: int
    seed: int
    sets: int = 1

    @property
    def wanted(self) -> int:
        return self.k * self.sets


@dataclass(frozen=True, slots=True)
class Retrieved:
    """An entry that was chosen. `similarity` is the cosine of query and key, `score` what it was ranked by.

    `first_after`: actor steps since it was written, if this is the first time that training retrieves it.
    """

    entry_id: int
    text: str
    similarity: float
    score: float
    first_after: int | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """One chosen candidate, before its text is fetched."""

    entry_id: int
    similarity: float
    score: float


def choose(
    pools: Sequence[Candidates], wanted: Sequence[int], config: RetrievalConfig, *, seeds: Sequence[int], step: int, training: bool
) -> list[list[Choice]]:
    """For each query the best `wanted` of its pool, best first. Ties go to the more similar entry, then to the newer one.

    Queries are scored together, since a query alone costs as many calls into NumPy as a thousand; each draws by its own seed.
    """
    batch = _Batch(pools)
    places = np.minimum(np.array(wanted, dtype=np.int64), batch.sizes)
    if config.score == "paper":
        scores = _paper_scores(batch, places, config, seeds=seeds, step=step, training=training)
    else:
        scores = _value_scores(batch, config, seeds=seeds, training=training)
    order = batch.order(scores)
    if config.score == "value" and training and config.trial_rate > 0:
        ranked = [
            _with_trials(order[part], batch.joined.shown, int(number), config.trial_rate, seed)
            for part, number, seed in zip(batch.parts, places, seeds, strict=True)
        ]
    else:
        ranked = [order[part.start : part.start + number] for part, number in zip(batch.parts, places.tolist(), strict=True)]
    flat = np.concatenate([*ranked, np.empty(0, dtype=np.int64)])
    columns = (batch.joined.ids[flat].tolist(), batch.joined.similarity[flat].tolist(), scores[flat].tolist())
    choices = iter([Choice(*row) for row in zip(*columns, strict=True)])
    return [[next(choices) for _ in places] for places in ranked]


class _Batch:
    """The pools of several queries, one after the other: `sizes` [q], `owner` [n] is the query a row belongs to."""

    def __init__(self, pools: Sequence[Candidates]) -> None:
        self.joined = Candidates.join(pools)
        self.sizes = np.array([len(pool) for pool in pools], dtype=np.int64)
        self.owner = np.repeat(np.arange(len(pools)), self.sizes)
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.parts = [slice(start, start + size) for start, size in zip(self.starts.tolist(), self.sizes.tolist(), strict=True)]

    def order(self, scores: Scores) -> NDArray[np.int64]:
        """Rows by query, then by score; the sort is stable and pools are in canonical order already."""
        return np.lexsort((-scores, self.owner))


def trim(pool: Candidates, size: int, config: RetrievalConfig) -> Candidates:
    """Cut a pool down to `size`. Only candidates that tie as its least similar are in question.

    paper: the newest stay. value: half of their room is for the best posterior means, so that a proven entry cannot fall out,
    and half for the newest that were never shown (either takes what the other leaves). Without that bound a crowd of unknown
    entries would win every Thompson draw by its number alone.
    """
    if len(pool) <= size:
        return pool
    if config.score == "paper":
        return pool.take(np.arange(size))
    tied = np.flatnonzero(pool.similarity == pool.similarity[-1])
    room = size - int(tied[0])
    known, unknown = tied[pool.shown[tied] > 0], tied[pool.shown[tied] == 0]
    wins, losses = _posterior(pool, config)
    best = known[np.argsort(-(wins / (wins + losses))[known], kind="stable")]
    trials = max(room // 2, room - len(best))
    kept = np.concatenate([unknown[:trials], best[: room - min(trials, len(unknown))]])
    return pool.take(np.sort(np.concatenate([np.arange(tied[0]), kept])))


def _paper_scores(
    batch: _Batch, places: NDArray[np.int64], config: RetrievalConfig, *, seeds: Sequence[int], step: int, training: bool
) -> Scores:
    """Eq 6: s(m) = s_rank(m) − λ·log(1 + c(m)) − 1[recent(m)], float64 [n].

    c is how often m was retrieved. A recent entry (retrieved within `recency_steps` of `step`) is demoted with
    `demote_probability`, each by a draw of its own.
    """
    pool, rows = batch.joined, np.arange(len(batch.owner))
    tied = np.zeros(len(rows), dtype=bool)
    tied[1:] = (pool.similarity[1:] == pool.similarity[:-1]) & (batch.owner[1:] == batch.owner[:-1])
    nearer = np.maximum.accumulate(np.where(tied, 0, rows)) - batch.starts[batch.owner]
    scores: Scores = 1.0 - nearer / batch.sizes[batch.owner] - config.diversity_lambda * np.log1p(pool.retrieved)
    if training and config.recency_steps > 0:
        recent = (pool.last_retrieved >= 0) & (step - pool.last_retrieved <= config.recency_steps)
        # A demotion matters to a query only if a recent entry would be among its first; making a generator is what costs.
        order = batch.order(scores)
        first = order[rows - batch.starts[batch.owner] < places[batch.owner]]
        for query in np.unique(batch.owner[first[recent[first]]]).tolist():
            part = batch.parts[query]
            demoted = rng(seeds[query], "demote").random(part.stop - part.start) < config.demote_probability
            scores[part] -= recent[part] & demoted
    return scores


def _value_scores(batch: _Batch, config: RetrievalConfig, *, seeds: Sequence[int], training: bool) -> Scores:
    """θ·max(0, cos)², float64 [n], with θ from the posterior Beta(α0 + successes, β0 + failures) of "it led to success".

    Training draws θ (Thompson sampling: what is little known gets its chance in proportion to how good it may be), evaluation
    takes its mean. cos² is the share of the query that the key explains: evidence gathered under another key counts that much.
    """
    wins, losses = _posterior(batch.joined, config)
    theta = wins / (wins + losses)
    if training:
        for part, seed in zip(batch.parts, seeds, strict=True):
            theta[part] = rng(seed, "thompson").beta(wins[part], losses[part])
    scores: Scores = theta * np.maximum(batch.joined.similarity, 0.0) ** 2
    return scores


def deal(choices: Sequence[Choice], sets: int) -> list[list[Choice]]:
    """Deal ranked entries out like cards, so that sets are alike in quality; fewer sets when there are fewer entries."""
    hands = min(sets, len(choices))
    return [list(choices[hand::hands]) for hand in range(hands)]


def _posterior(pool: Candidates, config: RetrievalConfig) -> tuple[Scores, Scores]:
    wins: Scores = np.add(pool.successes, config.prior_success)
    losses: Scores = np.add(pool.failures, config.prior_failure)
    return wins, losses


def _with_trials(order: NDArray[np.int64], shown: NDArray[np.int64], places: int, rate: float, seed: int) -> NDArray[np.int64]:
    """Reserve each of the `places`, with probability `rate`, for the best entries that were never shown."""
    reserved = int(np.count_nonzero(rng(seed, "trial").random(places) < rate))
    trials = np.flatnonzero(shown[order] == 0)[:reserved]
    others = np.setdiff1d(np.arange(len(order)), trials)[: places - len(trials)]
    chosen: NDArray[np.int64] = order[np.sort(np.concatenate([trials, others]))]
    return chosen
