"""Reading a run directory as it is: finished, killed half-way or damaged. What cannot be read becomes a sentence, not an error."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from complementary_rl.config import BankConfig
from complementary_rl.errors import UserError
from complementary_rl.experience.bank import Bank
from complementary_rl.experience.embedding import make_embedder
from complementary_rl.report.summary import BASELINE, RunSummary, load_summary
from complementary_rl.report.tail import number, parse_record
from complementary_rl.types import Entry


@dataclass(frozen=True)
class BankHistory:
    """What a bank holds. `parents` are the entries, retired ones too, that others came from, by id."""

    entries: list[Entry]
    retired: int
    counts: dict[str, float]
    parents: dict[int, Entry]


@dataclass
class RunData:
    """All a report needs of one run. Lists of records are in the order of the file; `problems` says what could not be read."""

    directory: Path
    method: str
    info: dict[str, Any]
    config: dict[str, Any]
    steps: list[dict[str, Any]] = field(default_factory=list)
    extractor: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    bank: BankHistory | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def is_baseline(self) -> bool:
        return self.method == BASELINE

    @property
    def parts(self) -> list[str]:
        """The parts of a mixture, in the order of the first step; empty for a single suite."""
        return next((list(record["parts"]) for record in self.steps if isinstance(record.get("parts"), dict)), [])

    def series(self, *path: str) -> tuple[list[float], list[float]]:
        """(training episodes, value) of the step records that have a number at `path`."""
        points = [(episodes_of(record), number(record, *path)) for record in self.steps]
        kept = [(x, y) for x, y in points if y is not None]
        return [x for x, _ in kept], [y for _, y in kept]

    def extractor_series(self, *names: str) -> tuple[list[float], list[float]]:
        """(extractor update, value) of the first of `names` that the extractor's records have."""
        for name in names:
            points = [(float(index), number(record, name)) for index, record in enumerate(self.extractor)]
            kept = [(x, y) for x, y in points if y is not None]
            if kept:
                return [x for x, _ in kept], [y for _, y in kept]
        return [], []


def find_runs(directory: Path) -> list[Path]:
    """`directory` if it is a run, else the runs right under it, the baseline last. Raises UserError when there is none."""
    if _is_run(directory):
        return [directory]
    found = sorted((path for path in directory.glob("*") if _is_run(path)), key=lambda path: (path.name == BASELINE, path.name))
    if not found:
        what = "holds no run" if directory.is_dir() else "does not exist"
        raise UserError(f"{directory} {what}; give a run directory such as runs/quickstart, which has a run.json or runs in it")
    return found


def read_run(directory: Path) -> RunData:
    """Everything readable in a run directory."""
    problems: list[str] = []
    info = _read_info(directory / "run.json", problems)
    config = _read_config(directory / "config.toml", problems)
    method = str(info.get("method") or directory.name)
    run = RunData(directory, method, info, config, problems=problems)
    _read_metrics(run)
    run.bank = _read_bank(run)
    return run


def read_summary(directory: Path, problems: list[str]) -> RunSummary | None:
    """The summary of a directory, or None with a sentence in `problems`."""
    try:
        return load_summary(directory)
    except UserError as error:
        problems.append(str(error))
        return None


def read_episodes(path: Path) -> list[dict[str, Any]]:
    """The readable episodes of one file; lines that are none are left out."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    records = [parse_record(line) for line in lines]
    return [record for record in records if record is not None and isinstance(record.get("turns"), list)]


def episodes_of(record: dict[str, Any]) -> float:
    """The x of every curve over training: episodes so far, or steps where a record does not count them."""
    episodes = number(record, "episodes")
    return episodes if episodes is not None else number(record, "step") or 0.0


def _is_run(path: Path) -> bool:
    return (path / "run.json").exists() or (path / "metrics.jsonl").exists()


def _read_info(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        info = parse_record(path.read_text(encoding="utf-8"))
    except OSError:
        info = None
    if info is None:
        problems.append(f"{path.name} is missing or damaged: the method is taken from the directory's name.")
    return info or {}


def _read_config(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        problems.append(f"{path.name} is missing or damaged: settings are not shown.")
        return {}


def _read_metrics(run: RunData) -> None:
    path = run.directory / "metrics.jsonl"
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        run.problems.append("metrics.jsonl is missing: there are no curves.")
        return
    records = [parse_record(line) for line in lines]
    broken = sum(record is None for record in records)
    if broken:
        run.problems.append(f"{broken} damaged line{'s' * (broken > 1)} of metrics.jsonl left out.")
    lists = {"step": run.steps, "extractor": run.extractor, "eval": run.evaluations}
    for record in records:
        if record is None:
            continue
        kind = record.get("kind")
        if isinstance(kind, str) and kind in lists:
            lists[kind].append(record)
        elif "message" in record:
            run.events.append(f"step {record['step']}: {record['message']}" if "step" in record else str(record["message"]))


def _read_bank(run: RunData) -> BankHistory | None:
    path = run.directory / "bank.sqlite"
    if not path.exists():
        return None
    section = run.config.get("bank")
    embedder = section.get("embedder", "hashing") if isinstance(section, dict) else "hashing"
    try:
        with Bank.open(path, BankConfig.model_validate({}), make_embedder(str(embedder)), run_id=None, read_only=True) as bank:
            everything = bank.entries(live_only=False)
            counts = bank.counts()
    except UserError as error:
        run.problems.append(str(error))
        return None
    live = [entry for entry in everything if entry.retired_step is None]
    wanted = {parent for entry in everything for parent in entry.parents}
    by_id = {entry.id: entry for entry in everything}
    parents = {entry_id: by_id[entry_id] for entry_id in wanted if entry_id in by_id}
    return BankHistory(live, len(everything) - len(live), counts, parents)
