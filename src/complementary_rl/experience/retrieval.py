"""How entries are chosen from a pool of near ones: Eq 6 of the paper, and value-aware scoring. Pure functions on arrays.

Deviations from the paper, each with its reason:

1. s_rank(m) is 1 − (candidates strictly nearer than m) / pool size, in (0, 1], so that 1[recent] sends an entry below every one
   that is not recent and λ means the same for any pool. Entries that are equally similar (they share a key) share a rank.
2. Recency is counted in actor steps, not seconds: the wall clock must not decide what a run learns.
3. Nothing counts as recent in evaluation, which moves no counters.
4. Where more entries are as near as the last of the pool than it has room for, the paper does not say which belong to it: `trim`.
"""

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from complementary_rl.config import RetrievalConfig
from complementary_rl.experience.live import Candidates, Pools
from complementary_rl.experience.posterior import Posterior
from complementary_rl.seeds import rng

Scores = NDArray[np.float64]


class Query(NamedTuple):
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


class Retrieved(NamedTuple):
    """An entry that was chosen. `similarity` is the cosine of query and key, `score` what it was ranked by.

    `first_after`: actor steps since it was written, if this is the first time that training retrieves it.
    """

    entry_id: int
    text: str
    similarity: float
    score: float
    first_after: int | None = None


class Choice(NamedTuple):
    """One chosen candidate, before its text is fetched."""

    entry_id: int
    similarity: float
    score: float


def choose(
    pools: Pools, wanted: Sequence[int], config: RetrievalConfig, *, seeds: Sequence[int], step: int, training: bool
) -> list[list[Choice]]:
    """For each query the best `wanted` of its pool, best first. Ties go to the more similar entry, then to the newer one.

    Queries are scored together, since a query alone costs as many calls into NumPy as a thousand; each draws by its own seed.
    """
    places = np.minimum(np.array(wanted, dtype=np.int64), pools.sizes)
    if config.score == "paper":
        scores = _paper_scores(pools, places, config, seeds=seeds, step=step, training=training)
    else:
        scores = _value_scores(pools, config, seeds=seeds, training=training)
    order = _order(pools, scores)
    if config.score == "value" and training and config.trial_rate > 0:
        shown = pools.candidates.shown
        ranked = [_with_trials(order[pools.part(i)], shown, places[i], config.trial_rate, seed) for i, seed in enumerate(seeds)]
        flat = np.concatenate([*ranked, np.empty(0, dtype=np.int64)])
    else:
        flat = order[_first(pools, places)]
    columns = (pools.candidates.ids[flat].tolist(), pools.candidates.similarity[flat].tolist(), scores[flat].tolist())
    choices = map(Choice, *columns)
    return [list(islice(choices, number)) for number in places.tolist()]


def trim(pools: Pools, sizes: Sequence[int], config: RetrievalConfig) -> Pools:
    """Cut pools down to `sizes`. Only candidates that tie as the least similar of their pool are in question.

    paper: the newest stay. value: half of their room is for the best posterior means, so that a proven entry cannot fall out,
    and half for those never shown, most votes first, then the newest (either half takes what the other leaves). Without that bound
    a crowd of unknown entries would win every Thompson draw by its number alone.
    """
    if not (pools.sizes > sizes).any():
        return pools
    kept = _first(pools, np.array(sizes, dtype=np.int64))
    if config.score == "value":
        means = _posterior_means(pools.candidates, config)
        for number in np.flatnonzero(pools.sizes > sizes).tolist():
            part = pools.part(number)
            similarity, shown = pools.candidates.similarity[part], pools.candidates.shown[part]
            tied = np.flatnonzero(similarity == similarity[-1])
            room = sizes[number] - int(tied[0])
            known, unknown = tied[shown[tied] > 0], tied[shown[tied] == 0]
            best = known[np.argsort(-means[part][known], kind="stable")]
            trials = max(room // 2, room - len(best))
            unknown = unknown[np.argsort(-means[part][unknown], kind="stable")]
            kept[part.start + tied] = False
            kept[part.start + unknown[:trials]] = True
            kept[part.start + best[: room - min(trials, len(unknown))]] = True
    return pools.keep(kept)


def _first(pools: Pools, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether a row [n] is among the first `numbers` [q] of its pool."""
    kept: NDArray[np.bool_] = np.arange(len(pools.owner)) - pools.starts[pools.owner] < numbers[pools.owner]
    return kept


def _order(pools: Pools, scores: Scores) -> NDArray[np.int64]:
    """Rows by pool, then by score; the sort is stable and pools are in canonical order already."""
    return np.lexsort((-scores, pools.owner))


def _paper_scores(
    pools: Pools, places: NDArray[np.int64], config: RetrievalConfig, *, seeds: Sequence[int], step: int, training: bool
) -> Scores:
    """Eq 6: s(m) = s_rank(m) − λ·log(1 + c(m)) − 1[recent(m)], float64 [n].

    c is how often m was retrieved. A recent entry (retrieved within `recency_steps` of `step`) is demoted with
    `demote_probability`, each by a draw of its own.
    """
    candidates, owner = pools.candidates, pools.owner
    tied = np.zeros(len(owner), dtype=bool)
    tied[1:] = (candidates.similarity[1:] == candidates.similarity[:-1]) & (owner[1:] == owner[:-1])
    nearer = np.maximum.accumulate(np.where(tied, 0, np.arange(len(owner)))) - pools.starts[owner]
    scores: Scores = 1.0 - nearer / pools.sizes[owner] - config.diversity_lambda * np.log1p(candidates.retrieved)
    if training and config.recency_steps > 0:
        recent = (candidates.last_retrieved >= 0) & (step - candidates.last_retrieved <= config.recency_steps)
        # A demotion matters to a query only if a recent entry would be among its first; making a generator is what costs.
        first = _order(pools, scores)[_first(pools, places)]
        for number in np.unique(owner[first[recent[first]]]).tolist():
            part = pools.part(number)
            demoted = rng(seeds[number], "demote").random(part.stop - part.start) < config.demote_probability
            scores[part] -= recent[part] & demoted
    return scores


def _value_scores(pools: Pools, config: RetrievalConfig, *, seeds: Sequence[int], training: bool) -> Scores:
    """θ·max(0, cos)², float64 [n], with θ from the `Posterior` of "it led to success".

    Training draws θ (Thompson sampling: what is little known gets its chance in proportion to how good it may be), evaluation
    takes its mean. cos² is the share of the query that the key explains: evidence gathered under another key counts that much.
    """
    candidates = pools.candidates
    theta = _posterior_means(candidates, config)
    if training:
        posterior = Posterior.of(config)
        wins = posterior.wins(candidates.successes.astype(float), candidates.votes.astype(float))
        losses = posterior.losses(candidates.failures.astype(float))
        for number, seed in enumerate(seeds):
            part = pools.part(number)
            theta[part] = rng(seed, "thompson").beta(wins[part], losses[part])
    scores: Scores = theta * np.maximum(candidates.similarity, 0.0) ** 2
    return scores


def deal(choices: Sequence[Choice], sets: int) -> list[list[Choice]]:
    """Deal ranked entries out like cards, so that sets are alike in quality; fewer sets when there are fewer entries."""
    hands = min(sets, len(choices))
    return [list(choices[hand::hands]) for hand in range(hands)]


def _posterior_means(candidates: Candidates, config: RetrievalConfig) -> Scores:
    counts = (candidates.successes, candidates.failures, candidates.votes)
    return Posterior.of(config).mean(*(count.astype(float) for count in counts))


def _with_trials(order: NDArray[np.int64], shown: NDArray[np.int64], places: int, rate: float, seed: int) -> NDArray[np.int64]:
    """Reserve each of the `places`, with probability `rate`, for the best entries that were never shown."""
    reserved = int(np.count_nonzero(rng(seed, "trial").random(places) < rate))
    trials = np.flatnonzero(shown[order] == 0)[:reserved]
    others = np.setdiff1d(np.arange(len(order)), trials)[: places - len(trials)]
    chosen: NDArray[np.int64] = order[np.sort(np.concatenate([trials, others]))]
    return chosen
