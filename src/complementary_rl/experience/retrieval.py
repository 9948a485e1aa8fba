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


def choose(pool: Candidates, wanted: int, config: RetrievalConfig, *, seed: int, step: int, training: bool) -> list[Choice]:
    """The best `wanted` of a pool, best first. Ties go to the more similar entry, then to the newer one."""
    if config.score == "paper":
        scores = paper_scores(pool, config, seed=seed, step=step, training=training)
    else:
        scores = value_scores(pool, config, seed=seed, training=training)
    # The pool is in canonical order already and the sort is stable.
    order = np.argsort(-scores, kind="stable")
    if config.score == "value" and training and config.trial_rate > 0:
        order = _with_trials(order, pool.shown, wanted, config.trial_rate, seed)
    return [Choice(int(pool.ids[i]), float(pool.similarity[i]), float(scores[i])) for i in order[:wanted]]


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


def paper_scores(pool: Candidates, config: RetrievalConfig, *, seed: int, step: int, training: bool) -> Scores:
    """Eq 6: s(m) = s_rank(m) − λ·log(1 + c(m)) − 1[recent(m)], float64 [n].

    c is how often m was retrieved. A recent entry (retrieved within `recency_steps` of `step`) is demoted with
    `demote_probability`, each by a draw of its own.
    """
    nearer = np.searchsorted(-pool.similarity, -pool.similarity, side="left")
    scores: Scores = 1.0 - nearer / max(1, len(pool)) - config.diversity_lambda * np.log1p(pool.retrieved)
    if training and config.recency_steps > 0:
        recent = (pool.last_retrieved >= 0) & (step - pool.last_retrieved <= config.recency_steps)
        if recent.any():  # making a generator costs more than all the rest
            scores -= recent & (rng(seed, "demote").random(len(pool)) < config.demote_probability)
    return scores


def value_scores(pool: Candidates, config: RetrievalConfig, *, seed: int, training: bool) -> Scores:
    """θ·max(0, cos)², float64 [n], with θ from the posterior Beta(α0 + successes, β0 + failures) of "it led to success".

    Training draws θ (Thompson sampling: what is little known gets its chance in proportion to how good it may be), evaluation
    takes its mean. cos² is the share of the query that the key explains: evidence gathered under another key counts that much.
    """
    wins, losses = _posterior(pool, config)
    theta = rng(seed, "thompson").beta(wins, losses) if training else wins / (wins + losses)
    scores: Scores = theta * np.maximum(pool.similarity, 0.0) ** 2
    return scores


def deal(choices: Sequence[Choice], sets: int) -> list[list[Choice]]:
    """Deal ranked entries out like cards, so that sets are alike in quality; fewer sets when there are fewer entries."""
    hands = min(sets, len(choices))
    return [list(choices[hand::hands]) for hand in range(hands)]


def _posterior(pool: Candidates, config: RetrievalConfig) -> tuple[Scores, Scores]:
    wins: Scores = np.add(pool.successes, config.prior_success)
    losses: Scores = np.add(pool.failures, config.prior_failure)
    return wins, losses


def _with_trials(order: NDArray[np.int64], shown: NDArray[np.int64], wanted: int, rate: float, seed: int) -> NDArray[np.int64]:
    """Reserve each of the `wanted` places, with probability `rate`, for the best entries that were never shown."""
    places = min(wanted, len(order))
    reserved = int(np.count_nonzero(rng(seed, "trial").random(places) < rate))
    trials = np.flatnonzero(shown[order] == 0)[:reserved]
    others = np.setdiff1d(np.arange(len(order)), trials)[: places - len(trials)]
    chosen: NDArray[np.int64] = order[np.sort(np.concatenate([trials, others]))]
    return chosen
