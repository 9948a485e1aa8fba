"""`bank.source`: the bank a run starts from."""

import tempfile
from pathlib import Path

from complementary_rl.config import BankConfig
from complementary_rl.errors import ConfigError
from complementary_rl.experience.bank import Bank

_SQLITE_MAGIC = b"SQLite format 3\x00"
_FROM = "bank.source"
"""Trajectory id of the outcomes that were copied."""


def start_from(source: Path, bank: Bank, config: BankConfig) -> int:
    """Copy the live entries of `source` (a bank file or an export, JSONL or Parquet) and their outcomes into `bank`; returns how many.

    What they were credited with and who wrote them stays behind: those generations are another extractor's. Raises ConfigError when
    there is no such file, BankError when it is no bank or was filled by another embedder.
    """
    if not source.exists():
        raise ConfigError(f"bank.source: there is no file {source}; give the bank.sqlite of a run or what `crl bank export` wrote")
    with tempfile.TemporaryDirectory() as temporary:
        path = source
        if source.is_dir() or not _is_sqlite(source):
            path = Path(temporary) / "bank.sqlite"
            Bank.import_from(source, path)
        with Bank.open(path, config, bank.embedder, run_id=None, read_only=True) as given, bank.transaction():
            entries = given.entries()
            for entry in entries:
                added = bank.add(entry.text, key_text=entry.key_text, scope=entry.scope, step=0)
                if added.entry_id is not None:
                    stats = entry.stats
                    for _ in range(stats.votes):
                        bank.add(entry.text, key_text=entry.key_text, scope=entry.scope, step=0)
                    unknown = stats.shown - stats.successes - stats.failures
                    outcomes = [True] * stats.successes + [False] * stats.failures + [None] * unknown
                    bank.record_outcomes(0, ((added.entry_id, outcome, _FROM) for outcome in outcomes))
    return len(entries)


def _is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC
