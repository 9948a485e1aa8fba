"""`summary.json`: what a run, or several runs side by side, came to. The schema is versioned; docs/run-directory.md shows one.

A file of one run and one that combines several have the same shape: `methods` maps a method's name to its results.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, computed_field

from complementary_rl.errors import InfrastructureError, UserError
from complementary_rl.report.intervals import Estimate, bootstrap_interval, rate_difference
from complementary_rl.report.provenance import Provenance
from complementary_rl.report.times import TimeShares

__all__ = [
    "ArmSummary",
    "BankSummary",
    "Comparison",
    "Estimate",
    "MethodSummary",
    "PartSummary",
    "RunSummary",
    "bootstrap_interval",
    "combine_summaries",
    "combined_summary",
    "load_summary",
    "write_summary",
]

SCHEMA_VERSION = 2
"""Raised when a field changes its meaning or goes; new fields with a default do not raise it."""

FILE = "summary.json"
BASELINE = "baseline"
ARMS = ("guided", "free", "shuffled")


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


class ArmSummary(_Model):
    """The final evaluation of one arm: `guided`, `free` or `shuffled` (guided with another task's entries)."""

    success: Estimate = Estimate()
    """Share of episodes that reached the goal."""
    reward: Estimate = Estimate()
    """Sum of rewards of an episode."""
    actions: Estimate = Estimate()
    """Actions of an episode."""
    actions_per_success: Estimate = Estimate()
    """All actions over all successes: what one success costs, failed episodes included."""
    actions_when_won: Estimate = Estimate()
    """Actions of an episode that reached the goal. Compare with care: who wins only the easy episodes wins them fast."""


class BankSummary(_Model):
    """The experience bank at the end; operations are counted since it was made."""

    size: int = 0
    """Live entries."""
    keys: int = 0
    """Tasks they are filed under."""
    added: int = 0
    updated: int = 0
    merged: int = 0
    """Entries that replaced two or more."""
    votes: int = 0
    """Entries that said what a live one said already."""
    dropped: int = 0
    """By a merge."""
    evicted: int = 0
    """Because the bank was full."""
    returned: int = 0
    """Episodes the extractor found not worth an entry."""
    refused: int = 0
    """Texts too short to keep, or junk."""
    duplicate_share: float = 0.0
    """Votes among the texts taken."""
    never_used_share: float = 0.0
    """Live entries never retrieved."""
    useful_share: float | None = None
    """Share of the entries written in the last tenth of training that the suite judges right; None where it cannot judge."""

    @classmethod
    def from_counts(cls, counts: Mapping[str, float], useful_share: float | None = None) -> Self:
        """From `Bank.counts()`."""
        names = {
            "added": "add",
            "updated": "update",
            "merged": "merge",
            "votes": "vote",
            "dropped": "drop",
            "evicted": "evict",
            "returned": "return",
            "refused": "refuse",
        }
        values = {name: int(counts.get(names.get(name, name), 0)) for name in ("size", "keys", *names)}
        shares = {name: counts.get(name, 0.0) for name in ("duplicate_share", "never_used_share")}
        return cls(**values, **shares, useful_share=useful_share)


class PartSummary(_Model):
    """One part of a mixture."""

    arms: dict[str, ArmSummary] = Field(default_factory=dict)
    """Its share of the final evaluation."""
    episodes: int = 0
    """Training episodes."""
    faults: int = 0
    """Training episodes lost to its environments."""


class MethodSummary(_Model):
    """One method: its final evaluation and what it cost."""

    arms: dict[str, ArmSummary] = Field(default_factory=dict)
    """By name; without a bank there is only `free`."""
    parts: dict[str, PartSummary] = Field(default_factory=dict)
    """By name, where several suites were mixed; otherwise empty."""
    shown_share: float | None = None
    """Share of guided episodes for which the bank had something to show."""
    steps: int
    """Actor updates."""
    episodes: int
    """Training episodes."""
    extractor_updates: int = 0
    wall_seconds: float
    """Of training, over all interruptions."""
    time: TimeShares | None = None
    """Where the time of the training steps went."""
    peak_memory_gb: float | None = None
    """Most resident memory of the process, 10⁹ bytes."""
    bank: BankSummary | None = None
    provenance: Provenance

    @property
    def headline(self) -> ArmSummary:
        """How the method is meant to be used: guided where it keeps experience, else free."""
        return self.arms.get("guided") or self.arms.get("free") or ArmSummary()

    @computed_field  # type: ignore[prop-decorator]
    @property
    def success_guided(self) -> Estimate:
        return self.arms.get("guided", ArmSummary()).success

    @computed_field  # type: ignore[prop-decorator]
    @property
    def success_free(self) -> Estimate:
        return self.arms.get("free", ArmSummary()).success

    @computed_field  # type: ignore[prop-decorator]
    @property
    def reward(self) -> Estimate:
        """Of the headline arm, as are `actions` and `actions_per_success`."""
        return self.headline.reward

    @computed_field  # type: ignore[prop-decorator]
    @property
    def actions(self) -> Estimate:
        return self.headline.actions

    @computed_field  # type: ignore[prop-decorator]
    @property
    def actions_per_success(self) -> Estimate:
        return self.headline.actions_per_success


class Comparison(_Model):
    """Success of one arm of a method minus that of the baseline's free arm."""

    method: str
    arm: str
    difference: Estimate
    """Bootstrapped as independent samples over evaluation episodes; `n` is the smaller number of episodes."""


class RunSummary(_Model):
    """All of `summary.json`."""

    schema_version: int = SCHEMA_VERSION
    name: str
    """Name of the run, or of the directory that holds the runs."""
    methods: dict[str, MethodSummary]
    comparisons: tuple[Comparison, ...] = ()
    """With the baseline, where there is one among several runs."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def wall_seconds(self) -> float:
        """Of the longest run: those of one directory run side by side."""
        return max((method.wall_seconds for method in self.methods.values()), default=0.0)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def episodes(self) -> int:
        """Training episodes of all methods together."""
        return sum(method.episodes for method in self.methods.values())

    @computed_field  # type: ignore[prop-decorator]
    @property
    def bank(self) -> BankSummary | None:
        """Of the first method that has one."""
        return next((method.bank for method in self.methods.values() if method.bank is not None), None)

    def __str__(self) -> str:
        """A table for the terminal: a line per method and arm, and per part of a mixture, then the comparisons."""
        rows = [("method", "evaluated", "success", "actions per success", "episodes")]
        for name, method in self.methods.items():
            results = [(arm, method.arms[arm]) for arm in arm_order(method.arms)]
            for part, summary in method.parts.items():
                results += [(f"{part}, {arm}", summary.arms[arm]) for arm in arm_order(summary.arms)]
            for what, result in results:
                actions = result.actions_per_success.text(".1f")
                rows.append((name, what, result.success.text(), actions, str(result.success.n)))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        lines += [f"{c.method} {c.arm} − {BASELINE}: {c.difference.text('+z.2f')}" for c in self.comparisons]
        return "\n".join([*lines, "means with 95% bootstrap intervals over evaluation episodes"])


def write_summary(directory: Path, summary: RunSummary) -> Path:
    """Write `summary.json` whole or not at all; returns its path. Raises InfrastructureError when the disk refuses."""
    path, temporary = directory / FILE, directory / f".{FILE}.tmp"
    try:
        temporary.write_text(summary.model_dump_json(indent=2) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise InfrastructureError(f"cannot write {path}: {error.strerror}; free space or choose another directory") from error
    return path


def load_summary(directory: Path) -> RunSummary:
    """Read `summary.json` of a directory. Raises UserError when there is none or it is of a schema this version does not know."""
    path = directory / FILE
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; it is written when a run has finished") from error
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}); write it again with `crl train … --resume`") from error
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version != SCHEMA_VERSION:
        raise UserError(
            f"{path} has schema version {version!r}, this version reads {SCHEMA_VERSION}; use the version that wrote it"
        )
    try:
        return RunSummary.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{path} is damaged at {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def combine_summaries(directory: Path, runs: Sequence[Path]) -> RunSummary:
    """Put the summaries of `runs` together, write them as the summary of `directory`, and return it; see `combined_summary`."""
    summary = combined_summary(directory.name, runs)
    write_summary(directory, summary)
    return summary


def combined_summary(name: str, runs: Sequence[Path]) -> RunSummary:
    """The summaries of `runs` together, the baseline last. Methods keep their name; where two runs used the same method, each goes by
    the name of its directory. Raises UserError as `load_summary` does."""
    loaded = [(run, load_summary(run)) for run in runs]
    names = [method for _, summary in loaded for method in summary.methods]
    methods: dict[str, MethodSummary] = {}
    for run, summary in loaded:
        for method, result in summary.methods.items():
            methods[method if names.count(method) == 1 else run.name] = result
    if BASELINE in methods:
        methods[BASELINE] = methods.pop(BASELINE)
    return RunSummary(name=name, methods=methods, comparisons=_comparisons(methods))


def arm_order(arms: Iterable[str]) -> list[str]:
    """Arms as people read them: guided, free, shuffled, then any other."""
    return sorted(arms, key=lambda arm: (ARMS.index(arm) if arm in ARMS else len(ARMS), arm))


def _comparisons(methods: Mapping[str, MethodSummary]) -> tuple[Comparison, ...]:
    if BASELINE not in methods:
        return ()
    reference = methods[BASELINE].success_free
    found = [
        Comparison(method=name, arm=arm, difference=rate_difference(method.arms[arm].success, reference, method.provenance.seed))
        for name, method in methods.items()
        if name != BASELINE
        for arm in arm_order(method.arms)
    ]
    return tuple(comparison for comparison in found if comparison.difference.n)
