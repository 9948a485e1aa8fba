"""Sections of experience: its credit, distillation, bank, retrieval, merge, tool and gate."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from complementary_rl.config.section import Section


class CreditConfig(Section):
    """How the outcome of rollouts becomes the credit r(m) ∈ [−1, 1] of the generation that wrote the entry."""

    rule: Literal["outcome", "relative", "contrast"] = "outcome"
    """`outcome`: +1 success, −1 failure (the paper). `relative`: success rate minus the free half's. `contrast`: success rate minus
    that of the other entries shown in the same group (groups that showed one entry give no credit)."""
    unparsable: float | None = Field(-1.0, ge=-1, le=1)
    """Credit of output that could not be parsed; None gives none and counts it."""
    returned: float | None = Field(None, ge=-1, le=1)
    """Credit of `return` (nothing worth keeping); None gives none and counts it."""
    refused: float | None = Field(-1.0, ge=-1, le=1)
    """Credit of output of which the bank refused every text (too short, or junk); None gives none and counts it."""


class DistillConfig(Section):
    """Which episodes the extractor reads."""

    per_group: int | None = Field(None, ge=1)
    """Most episodes of a group that are read (best and worst by turns); None reads all."""
    max_attempts: int = Field(3, ge=1)
    """Tries before an episode whose distillation fails is set aside with its cause."""
    queue_size: int = Field(1024, ge=1)
    """Episodes waiting for the extractor; when full, the submitter waits."""
    batch_size: int = Field(64, ge=1)
    """Episodes read in one batched call of the extractor."""


class BankConfig(Section):
    """The experience bank."""

    source: Path | None = None
    """Bank to start from: the `bank.sqlite` of another run, or what `crl bank export` wrote. Its live entries and their outcomes
    are copied once, when the run starts. Method `offline` needs it."""
    capacity: int = Field(20_000, ge=1)
    """Most live entries."""
    eviction: Literal["fifo", "lru", "value"] = "fifo"
    """Who leaves when it is full: the oldest, the least recently retrieved, or the worst by posterior mean."""
    embedder: str = "hashing"
    """`hashing` (built in, no download), `packaged:minilm` (extra `minilm`), or another sentence-transformers model by hub name or path."""
    protect_proven: bool = False
    """An update does not retire a target whose posterior mean of success (see `retrieval.prior_success`) is above an untried entry's:
    both stay, and compete. False replaces it, as in the paper."""
    min_chars: int = Field(4, ge=1)
    """Shorter entries are refused and counted."""
    max_chars: int = Field(2000, ge=1)
    """Longer entries are cut off and counted."""
    junk_filter: bool = True
    """Refuse, and count by reason, texts that say nothing whatever the task: boilerplate, endless repetition, the task's own description.
    False takes everything, as the paper does."""
    boilerplate: Path | None = None
    """TOML file of phrases that count as boilerplate, instead of the shipped `complementary_rl/experience/boilerplate.toml`."""
    duplicate_similarity: float = Field(1.0, gt=0, le=1)
    """An added entry whose text has at least this cosine to a live one of the same key becomes a vote for that one; 1 merges only
    identical texts."""


class RetrievalConfig(Section):
    """How entries are chosen."""

    score: Literal["paper", "value"] = "paper"
    """`paper` is Eq 6; `value` blends similarity, the posterior of success (Thompson sampling while training, mean in evaluation) and
    diversity."""
    entries_per_rollout: int = Field(1, ge=1)
    """k, entries shown to one guided rollout."""
    entries_per_group: int = Field(1, ge=1)
    """Different entries (or sets of k) shown inside one group, dealt to its guided rollouts by turns."""
    pool_factor: int = Field(16, ge=1)
    """Nearest candidates per entry wanted."""
    min_similarity: float = Field(0.0, ge=-1, le=1)
    """Cosine floor; when nothing reaches it, the rollout is free and is labelled so."""
    cross_task: bool = False
    """Also search the scopes of other tasks, for what the own scope does not fill."""
    cross_task_floor: float = Field(0.5, ge=-1, le=1)
    """Cosine floor there; `min_similarity` holds as well."""
    contamination_guard: bool = True
    """Offer an entry no longer in another scope whose guided rollouts with it do worse than free ones (see docs/bank.md)."""
    diversity_lambda: float = Field(0.4, ge=0)
    """λ of Eq 6."""
    recency_steps: int = Field(1, ge=0)
    """Entries retrieved within this many actor steps count as recent in Eq 6; 0 is off."""
    demote_probability: float = Field(0.5, ge=0, le=1)
    """Chance that a recent entry is really demoted (1[recent] applied)."""
    prior_success: float = Field(0.4, gt=0)
    """α0 of the Beta prior of an entry's success (`value`); pessimistic, or every new entry beats a proven one."""
    prior_failure: float = Field(2.0, gt=0)
    """β0 of that prior."""
    vote_weight: float = Field(0.0, ge=0)
    """Successes that a vote counts for in an entry's posterior (`value`). A vote is another generation that wrote the same text; 0 takes
    outcomes alone."""
    trial_rate: float = Field(0.0, ge=0, le=1)
    """Share of draws reserved for entries never shown yet (`value`), so that each gets a first trial."""
    batch_size: int = Field(16, ge=1)
    """B: queries of concurrent rollouts gathered for one search (schedule `async`)."""
    max_wait: float = Field(0.001, ge=0)
    """t_max: seconds a query waits for B to come together."""
    searches: int = Field(2, ge=1)
    """W: searches at the same time, each in a thread of its own (schedule `async`)."""
    timeout: float = Field(10.0, gt=0)
    """Seconds after which a rollout goes on without experience, as a free one (schedule `async`; in `lockstep` no clock decides)."""


class MergeConfig(Section):
    """Consolidation of the bank by the extractor."""

    enabled: bool = True
    """Switch."""
    mode: Literal["chunks", "clusters"] = "chunks"
    """Which entries meet. `chunks` (the paper): chunks slide over all entries of a task. `clusters`: near-duplicates of a task, the most
    redundant first; entries without any are never read."""
    interval: int = Field(5, ge=1)
    """Actor updates between merges."""
    redundancy: float | None = Field(None, gt=0, le=1)
    """Also merge after an update at which this share of the live entries have a near-duplicate and were not read beside it yet; None is
    off."""
    similarity: float = Field(0.9, gt=0, le=1)
    """Cosine from which two texts of one task are near-duplicates, for `mode` `clusters` and for `redundancy`. It depends on the embedder:
    opposite advice may be near (see docs/bank.md), but here the extractor decides."""
    chunk: int = Field(5, ge=2)
    """Entries the extractor sees at once."""
    max_chunks: int = Field(8, ge=1)
    """Chunks per merge; the next merge goes on where this one stopped."""


class ToolConfig(Section):
    """search_and_ask: a guided actor may ask the extractor in the middle of an episode."""

    enabled: bool = False
    """Switch."""
    budget: int = Field(2, ge=1)
    """Questions per episode."""
    timeout: float = Field(30.0, gt=0)
    """Seconds after which the actor is told that no answer came."""
    max_new_tokens: int = Field(512, ge=1)
    """Most tokens of an answer."""


class GateConfig(Section):
    """Eq 8: the actor accepts, refines or rejects an entry before it acts. Off by default, as in the paper."""

    enabled: bool = False
    """Switch."""
    warmup_steps: int = Field(10, ge=0)
    """Steps in which the success rate is estimated and the gate is not asked."""
    max_new_tokens: int = Field(64, ge=1)
    """Most tokens of a verdict."""
