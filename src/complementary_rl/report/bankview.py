"""Which entries of a bank earned their keep, which failed, and where they come from."""

from dataclasses import dataclass

from complementary_rl.readable import shortened
from complementary_rl.report.rundir import BankHistory
from complementary_rl.types import Entry

TOP, FAILED = 12, 8
_LEAST_TRIALS, _LOW_SHARE = 4, 0.25
"""An entry failed when it guided at least so many rollouts and at most this share of them succeeded."""
MOST_CHARACTERS = 600


@dataclass(frozen=True)
class EntryView:
    """An entry as a table shows it; `parents` are (id, text) of what it came from, `share` its successes in percent."""

    id: int
    text: str
    about: str
    step: int
    successes: int
    failures: int
    share: float
    trained: int
    parents: list[tuple[int, str]]


def top_entries(bank: BankHistory) -> list[EntryView]:
    """The live entries that guided most rollouts to success, without those that guided far more to failure."""
    earned = [entry for entry in bank.entries if entry.stats.successes and not _failed(entry)]
    earned.sort(key=lambda entry: (-entry.stats.successes, entry.stats.failures, entry.id))
    return [_view(entry, bank) for entry in earned[:TOP]]


def failed_entries(bank: BankHistory) -> list[EntryView]:
    """The live entries that were tried several times and seldom helped, worst first."""
    tried = [entry for entry in bank.entries if _failed(entry)]
    tried.sort(key=lambda entry: (_share(entry), -_trials(entry), entry.id))
    return [_view(entry, bank) for entry in tried[:FAILED]]


def bank_facts(bank: BankHistory) -> list[tuple[str, str]]:
    """(name, value) of what is worth knowing of a bank as a whole."""
    tried = [entry for entry in bank.entries if _trials(entry)]
    return [
        ("live entries", f"{len(bank.entries):,}"),
        ("retired", f"{bank.retired:,}"),
        ("tasks they are about", f"{bank.counts.get('keys', 0):,.0f}"),
        ("tried in a rollout", _of(len(tried), len(bank.entries))),
        ("never retrieved", f"{bank.counts.get('never_used_share', 0.0):.0%}"),
        ("repeats among texts taken", f"{bank.counts.get('duplicate_share', 0.0):.0%}"),
        ("texts refused", f"{bank.counts.get('refuse', 0):,.0f}"),
    ]


def _view(entry: Entry, bank: BankHistory) -> EntryView:
    stats = entry.stats
    parents = [(parent, shortened(bank.parents[parent].text, 200)) for parent in entry.parents if parent in bank.parents]
    return EntryView(
        id=entry.id,
        text=shortened(entry.text, MOST_CHARACTERS),
        about=shortened(entry.key_text, 120),
        step=entry.created_step,
        successes=stats.successes,
        failures=stats.failures,
        share=100 * _share(entry),
        trained=stats.trained,
        parents=parents,
    )


def _failed(entry: Entry) -> bool:
    return _trials(entry) >= _LEAST_TRIALS and _share(entry) <= _LOW_SHARE


def _trials(entry: Entry) -> int:
    return entry.stats.successes + entry.stats.failures


def _share(entry: Entry) -> float:
    return entry.stats.successes / max(1, _trials(entry))


def _of(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "–"
