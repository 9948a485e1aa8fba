"""One self-contained HTML page of a run, or of several side by side: no scripts, no fonts, nothing fetched.

Everything a run wrote (entries, observations, names) is untrusted text: the templates escape it, and the page's own policy forbids
scripts and requests in case they did not. Only the SVG that `svg` draws is put in as markup.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from complementary_rl import __version__
from complementary_rl.errors import InfrastructureError
from complementary_rl.readable import shortened
from complementary_rl.report.bankview import MOST_CHARACTERS, EntryView, bank_facts, failed_entries, top_entries
from complementary_rl.report.curves import Picture, bank_pictures, extractor_pictures, part_pictures, training_pictures
from complementary_rl.report.episodes import EpisodeView, chosen_episodes
from complementary_rl.report.findings import differences, evaluation_rows, part_rows, reward_differs, sentence, tiles
from complementary_rl.report.rundir import RunData, find_runs, read_run, read_summary
from complementary_rl.report.summary import FILE as SUMMARY
from complementary_rl.report.summary import MethodSummary, RunSummary, combined_summary
from complementary_rl.report.times import COMPUTE, PARTS, time_shares

FILE = "report.html"
_MOST_EVENTS = 50
_IDLE = [name for name in (*PARTS, "other") if name not in COMPUTE]


@dataclass(frozen=True)
class TimePart:
    """A part of a run's wall time; `share` in percent, `tone` the CSS class of its colour, grey where no model computes."""

    name: str
    seconds: float
    share: float
    tone: str


@dataclass(frozen=True)
class RunView:
    """What the page shows of one run. `compute_share` is the percentage of its time in which a model computed."""

    name: str
    extractor: list[Picture]
    bank: list[Picture]
    facts: list[tuple[str, str]]
    top: list[EntryView]
    failed: list[EntryView]
    times: list[TimePart]
    compute_share: float | None
    episodes: list[EpisodeView]
    events: list[str]
    more_events: int
    problems: list[str]
    origin: dict[str, str]

    @property
    def has_experience(self) -> bool:
        return bool(self.facts) or any(picture.svg for picture in (*self.extractor, *self.bank))


def write_report(directory: Path) -> Path:
    """Write `report.html` in a run directory, or in a directory of runs; returns its path.

    A run that goes on, was killed or lost files gives the page of what there is, with a sentence for what is missing. Raises UserError
    when there is no run at all, InfrastructureError when the disk refuses.
    """
    page = render_report(directory)
    path, temporary = directory / FILE, directory / f".{FILE}.tmp"
    try:
        temporary.write_text(page, encoding="utf-8", errors="replace")
        temporary.replace(path)
    except OSError as error:
        raise InfrastructureError(f"cannot write {path}: {error.strerror}; free space or make {directory} writable") from error
    return path


def render_report(directory: Path) -> str:
    """The page as text. Raises UserError when `directory` holds no run."""
    runs = [read_run(path) for path in find_runs(directory)]
    problems: list[str] = []
    summaries = {run.directory: _summary_of(run) for run in runs}
    summary = _whole_summary(directory, [path for path, own in summaries.items() if own is not None], problems)
    views = [_view(run, summaries[run.directory], f"run{index}") for index, run in enumerate(runs)]
    unfinished = [run.name for run in runs if summary is not None and summaries[run.directory] is None]
    environment = Environment(
        loader=PackageLoader("complementary_rl.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["markup"] = Markup
    return environment.get_template("report.html.j2").render(
        name=directory.resolve().name,
        version=__version__,
        sentence=sentence(summary, runs),
        unfinished=unfinished,
        tiles=tiles(summary, runs),
        differences=differences(summary),
        training=training_pictures(runs),
        part_curves=part_pictures(runs),
        evaluation=evaluation_rows(summary) if summary is not None else [],
        part_evaluation=part_rows(summary) if summary is not None else {},
        rewards=summary is not None and reward_differs(summary),
        runs=views,
        origin=_side_by_side([view.origin for view in views]),
        problems=problems,
    )


def _summary_of(run: RunData) -> RunSummary | None:
    """A run's own summary. That an unfinished run has none is said once, at the top of the page."""
    return read_summary(run.directory, run.problems) if (run.directory / SUMMARY).exists() else None


def _whole_summary(directory: Path, finished: Sequence[Path], problems: list[str]) -> RunSummary | None:
    """The directory's own summary, else that of the finished runs in it."""
    if (directory / SUMMARY).exists():
        return read_summary(directory, problems)
    return combined_summary(directory.resolve().name, finished) if finished else None


def _view(run: RunData, summary: RunSummary | None, prefix: str) -> RunView:
    method = next(iter(summary.methods.values()), None) if summary is not None else None
    times, compute_share = _times(run)
    return RunView(
        name=run.name,
        extractor=extractor_pictures(run, prefix) if run.extractor or run.bank else [],
        bank=bank_pictures(run, prefix) if run.bank else [],
        facts=bank_facts(run.bank) if run.bank else [],
        top=top_entries(run.bank) if run.bank else [],
        failed=failed_entries(run.bank) if run.bank else [],
        times=times,
        compute_share=compute_share,
        episodes=chosen_episodes(run.directory, run.method),
        events=[shortened(event, MOST_CHARACTERS) for event in run.events[-_MOST_EVENTS:]],
        more_events=max(0, len(run.events) - _MOST_EVENTS),
        problems=run.problems,
        origin=_origin(run, method),
    )


def _times(run: RunData) -> tuple[list[TimePart], float | None]:
    shares = time_shares(run.steps)
    total = sum(shares.seconds.values())
    parts = []
    for name, seconds in shares.seconds.items():
        tone = f"tone{1 + COMPUTE.index(name)}" if name in COMPUTE else f"idle{_IDLE.index(name)}"
        parts.append(TimePart(name, seconds, 100 * seconds / total, tone))
    return parts, None if shares.compute_share is None else 100 * shares.compute_share


def _origin(run: RunData, method: MethodSummary | None) -> dict[str, str]:
    """How the run was made, as far as is known."""
    environment = run.config.get("env")
    suite = environment.get("suite") if isinstance(environment, dict) else None
    facts = {name.replace("_", " "): run.info.get(name) for name in ("method", "seed", "started", "version", "config_hash")}
    facts |= {"suite": suite, "steps": f"{len(run.steps):,}", "extractor updates": f"{len(run.extractor):,}"}
    if method is not None:
        made, machine = method.provenance, method.provenance.machine
        memory = f", {machine.memory_gb:.0f} GB" if machine.memory_gb is not None else ""
        accelerators = "".join(f", {name}" for name in machine.accelerators)
        facts |= {
            "wall time": _duration(method.wall_seconds),
            "peak memory": None if method.peak_memory_gb is None else f"{method.peak_memory_gb:.2f} GB",
            "command": made.command,
            "commit": made.commit,
            "machine": f"{machine.processor}, {machine.cores} cores{memory}{accelerators}; {machine.system}",
            "python, torch": f"{machine.python}, {machine.torch or '–'}",
        }
    return {name: shortened(value, MOST_CHARACTERS) for name, value in facts.items() if value not in (None, "")}


def _side_by_side(origins: Sequence[dict[str, str]]) -> list[tuple[str, list[str]]]:
    """(name, value of each run), with a single value where all runs agree."""
    names = dict.fromkeys(name for origin in origins for name in origin)
    rows = [(name, [origin.get(name, "–") for origin in origins]) for name in names]
    return [(name, values[:1] if len(set(values)) == 1 else values) for name, values in rows]


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
