"""Progress while training: a live bar on a terminal, plain lines elsewhere."""

import json
import subprocess
import time
from collections import defaultdict, deque
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

PLAIN_SECONDS = 15.0
POLL_SECONDS = 0.5
SMOOTHING = 10
"""Steps over which the shown success rates are averaged."""


class Progress:
    """Shows one or several runs. `record` takes a run's metrics records, of any kind; unknown kinds are ignored."""

    def __init__(self, total_steps: int, *labels: str, console: Console | None = None) -> None:
        self._console = console or Console()
        self._live = self._console.is_terminal
        self._total = total_steps
        self._windows: dict[str, dict[str, deque[float]]] = {
            label: defaultdict(lambda: deque(maxlen=SMOOTHING)) for label in labels
        }
        self._printed = dict.fromkeys(labels, -PLAIN_SECONDS)
        columns = [TextColumn("{task.description:<14}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeRemainingColumn()]
        self._rich = RichProgress(*columns, TextColumn("{task.fields[status]}"), console=self._console, disable=not self._live)
        self._tasks = {label: self._rich.add_task(label, total=total_steps, status="starting") for label in labels}

    def __enter__(self) -> Self:
        self._rich.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._rich.stop()

    def record(self, record: Mapping[str, Any], label: str | None = None) -> None:
        """Show a metrics record of the run `label` (the only one by default)."""
        label = label or next(iter(self._windows))
        if record.get("kind") == "step":
            self._step(label, record)
        elif record.get("kind") == "event":
            self._console.print(f"{label}: {record['message']}", markup=False, highlight=False)
        elif record.get("kind") == "eval":
            self._console.print(f"{label}: {_evaluation(record)}", markup=False, highlight=False)

    def _step(self, label: str, record: Mapping[str, Any]) -> None:
        done = int(record["step"]) + 1
        window = self._windows[label]
        for condition, measures in record["rollout"].items():
            window[condition].append(measures["success"])
        shown = [f"{name} {sum(values) / len(values):.2f}" for name, values in window.items()]
        if "bank_size" in record.get("experience", {}):
            shown.append(f"bank {record['experience']['bank_size']:.0f}")
        status = "success " + ", ".join(shown)
        self._rich.update(self._tasks[label], completed=done, status=status)
        now = time.monotonic()
        if not self._live and (now - self._printed[label] >= PLAIN_SECONDS or done == self._total):
            self._printed[label] = now
            text = f"{label}: step {done}/{self._total}  {status}  ({record['wall']:.0f} s)"
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def watch_runs(runs: Mapping[str, Path], processes: Mapping[str, "subprocess.Popen[bytes]"], total_steps: int) -> None:
    """Show runs that other processes write, by following their metrics files, until every process has ended or one has failed."""
    offsets = dict.fromkeys(runs, 0)
    with Progress(total_steps, *runs) as progress:
        while True:
            ended = [process.poll() for process in processes.values()]
            for label, run in runs.items():
                offsets[label] = _follow(run / "metrics.jsonl", offsets[label], progress, label)
            if all(code is not None for code in ended) or any(ended):
                return
            time.sleep(POLL_SECONDS)


def _follow(path: Path, offset: int, progress: Progress, label: str) -> int:
    if not path.exists():
        return offset
    with path.open("rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                break
            offset += len(line)
            progress.record(json.loads(line), label)
    return offset


def _evaluation(record: Mapping[str, Any]) -> str:
    arms = {arm: record[arm]["success"] for arm in ("guided", "free", "shuffled") if arm in record}
    texts = [f"{arm} {estimate['mean']:.2f} [{estimate['lo']:.2f}, {estimate['hi']:.2f}]" for arm, estimate in arms.items()]
    return f"evaluation after step {record['step']}: success {', '.join(texts)}"
