"""Live progress: a small picture in a terminal, plain lines anywhere else."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from complementary_rl.readable import printable
from complementary_rl.report.state import WINDOW, RunState
from complementary_rl.report.tail import Tail

WIDTH = 32
"""Of a progress bar and of the curves under it, which share its time axis."""
REFRESHES_PER_SECOND = 2
PLAIN_LINES = 20
"""Plain lines of a whole run …"""
PLAIN_SECONDS = 60.0
"""… or one after this long, whichever comes first."""
POLL_SECONDS = 0.5
_BLOCKS = "▁▂▃▄▅▆▇█"
_COLOURS = {"guided": "cyan", "free": "yellow"}


class Process(Protocol):
    """A started process: `subprocess.Popen`, or anything that can be polled."""

    def poll(self) -> int | None: ...


class View:
    """Shows runs side by side. `record` takes their metrics, `event` a line to keep on the screen."""

    def __init__(
        self, runs: Mapping[str, RunState], console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.runs = runs
        self._console = console or Console()
        self._clock = clock
        self._live = Live(console=self._console, refresh_per_second=REFRESHES_PER_SECOND) if self._console.is_terminal else None
        self._last_line = {name: (0, clock()) for name in runs}

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.update(render(self.runs))
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.update(render(self.runs))
            self._live.stop()

    def record(self, name: str, record: Mapping[str, Any]) -> None:
        state = self.runs[name]
        state.record(record)
        if record.get("kind") in ("event", "merge") and "message" in record:
            self.event(f"{state.label}: {record['message']}")
        if self._live is not None:
            self._live.update(render(self.runs))
        elif record.get("kind") == "eval" or (record.get("kind") == "step" and self._due(name)):
            self._last_line[name] = (state.steps_done, self._clock())
            self._console.print(plain_line(state), soft_wrap=True, markup=False, highlight=False)

    def event(self, text: str) -> None:
        """Something a person should know of; `text` takes one line."""
        self._console.print(Text(printable(f"! {text}", keep="")), soft_wrap=True)

    def _due(self, name: str) -> bool:
        state, (step, when) = self.runs[name], self._last_line[name]
        every = max(1, state.total_steps // PLAIN_LINES)
        return state.steps_done - step >= every or state.steps_done == state.total_steps or self._clock() - when >= PLAIN_SECONDS


class Progress:
    """Progress of one run in this process: ``with Progress(steps, name) as progress: train(…, on_record=progress.record)``."""

    def __init__(self, total_steps: int, label: str, console: Console | None = None) -> None:
        self._label = label
        self._view = View({label: RunState(label, total_steps)}, console)

    def __enter__(self) -> Self:
        self._view.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._view.__exit__(kind, error, trace)

    def record(self, record: Mapping[str, Any]) -> None:
        """Take a metrics record of any kind."""
        self._view.record(self._label, record)

    def event(self, text: str) -> None:
        """Show a line that stays."""
        self._view.event(text)


def watch_runs(
    runs: Mapping[str, Path], processes: Mapping[str, Process], *, total_steps: int, console: Console | None = None
) -> None:
    """Show runs that other processes make, from their metrics.jsonl, until all have ended or one has failed."""
    tails = {name: Tail(directory / "metrics.jsonl") for name, directory in runs.items()}
    with View({name: RunState(name, total_steps) for name in runs}, console) as view:
        while True:
            codes = [process.poll() for process in processes.values()]
            for name, tail in tails.items():
                for record in tail.read():
                    view.record(name, record)
            if all(code is not None for code in codes) or any(codes):
                return
            time.sleep(POLL_SECONDS)


def plain_line(state: RunState) -> str:
    """Where a run stands, on one line."""
    parts = [f"{state.label}  step {state.steps_done}/{state.total_steps}"]
    if state.phase == "done":
        parts += [f"evaluation: {arm} {mean:.0%}" for arm, mean in state.evaluation.items()]
    else:
        parts += [
            f"{condition} {_percent(state.recent(condition))}" for condition in ("guided", "free") if condition in state.success
        ]
    if state.bank_size is not None:
        parts.append(f"bank {state.bank_size}")
    if state.useful_share is not None:
        parts.append(f"right {state.useful_share:.0%}")
    if state.extractor_updates:
        parts.append(f"extractor updates {state.extractor_updates}")
    parts.append(_time_text(state))
    return "  ".join(parts)


def render(runs: Mapping[str, RunState]) -> RenderableType:
    """The picture for a terminal."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    for state in runs.values():
        bar = ProgressBar(total=state.total_steps, completed=state.steps_done, width=WIDTH)
        steps = Text(f"{state.steps_done}/{state.total_steps}  {_time_text(state)}", style="dim")
        table.add_row(Text(state.label, style="bold"), _side_by_side(bar, steps))
        for condition in ("guided", "free"):
            if condition in state.success:
                table.add_row(Text(f"  {condition}", style=_COLOURS[condition]), _curve(state, condition))
        if state.bank_size is not None:
            table.add_row(Text("  bank"), Text(_bank_text(state)))
    note = Text(
        f"curves: success from 0 to 100%; numbers: mean of the last {WINDOW} steps",
        style="dim",
    )
    return Group(table, note)


def _side_by_side(*parts: RenderableType) -> Table:
    row = Table.grid(padding=(0, 2))
    row.add_row(*parts)
    return row


def _curve(state: RunState, condition: str) -> Text:
    values = state.curve(condition, WIDTH)
    bars = "".join(" " if value is None else _BLOCKS[min(len(_BLOCKS) - 1, int(value * len(_BLOCKS)))] for value in values)
    text = Text(bars, style=_COLOURS[condition])
    text.append(f"  {_percent(state.recent(condition)):>4}", style="bold")
    if condition in state.evaluation:
        text.append(f"  evaluation {state.evaluation[condition]:.0%}", style="dim")
    return text


def _bank_text(state: RunState) -> str:
    useful = "" if state.useful_share is None else f" · {state.useful_share:.0%} of the new ones right"
    updates = f" · {state.extractor_updates} extractor updates" if state.extractor_updates else ""
    return f"{state.bank_size:,} entries{useful}{updates}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def _time_text(state: RunState) -> str:
    if state.phase != "training":
        return {"starting": "starting", "evaluating": "evaluating"}.get(state.phase, f"trained in {_duration(state.wall)}")
    left = state.seconds_left()
    return f"{_duration(state.wall)} so far" if left is None else f"about {_duration(left)} left"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
