"""`metrics.jsonl` and the readable episodes: append-only, flushed per record, cut back to a checkpoint on resume."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from complementary_rl.errors import InfrastructureError
from complementary_rl.types import Condition, Trajectory


class MetricsLog:
    """Appends records to a JSONL file. Raises InfrastructureError when the disk refuses, naming the cause."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab")

    def append(self, record: dict[str, Any]) -> None:
        with _disk_errors(self.path):
            self._file.write((json.dumps(record, allow_nan=True) + "\n").encode())
            self._file.flush()

    def offset(self) -> int:
        """Bytes written so far, made durable; a checkpoint keeps it."""
        with _disk_errors(self.path):
            os.fsync(self._file.fileno())
        return self._file.tell()

    def truncate(self, offset: int) -> None:
        """Forget what was written after a checkpoint."""
        self._file.truncate(offset)
        self._file.seek(offset)

    def close(self) -> None:
        """Close the file; a record that could not be written has been reported by `append` and is not tried again."""
        with suppress(OSError):
            self._file.close()


def rollout_metrics(trajectories: Sequence[Trajectory]) -> dict[str, dict[str, float]]:
    """Success, reward, actions, actions per success and count by condition; a condition without episodes is absent.

    Counted where there were any: episodes that filled the context (`overlong`), observations that were cut, tool calls that could not be
    carried out.
    """
    result: dict[str, dict[str, float]] = {}
    for condition in Condition:
        members = [t for t in trajectories if t.condition is condition]
        if not members:
            continue
        actions = [t.n_actions for t in members]
        wins = sum(t.success for t in members)
        result[condition.value] = {
            "success": float(np.mean([t.success for t in members])),
            "reward": float(np.mean([t.reward for t in members])),
            "actions": float(np.mean(actions)),
            "n": float(len(members)),
        }
        counts = {
            "overlong": sum(t.overlong for t in members),
            "cut_observations": sum(t.cut_observations for t in members),
            "malformed_calls": sum(t.malformed_calls for t in members),
        }
        result[condition.value] |= {name: float(count) for name, count in counts.items() if count}
        if wins:
            result[condition.value]["actions_per_success"] = sum(actions) / wins
    return result


def readable_episode(trajectory: Trajectory, texts: dict[int, str]) -> dict[str, Any]:
    """An episode as people read it; `texts` maps the entries it was shown to their text."""
    return {
        "id": trajectory.id,
        "step": trajectory.step,
        "task": {"id": trajectory.task.id, "description": trajectory.task.description},
        "condition": trajectory.condition.value,
        "entries": [{"id": entry, "text": texts[entry]} for entry in trajectory.entry_ids],
        "turns": [{"kind": turn.kind, "observation": turn.observation, "action": turn.action} for turn in trajectory.turns],
        "final_observation": trajectory.final_observation,
        "reward": trajectory.reward,
        "success": trajectory.success,
        "n_actions": trajectory.n_actions,
        "stop_reason": trajectory.stop_reason,
    }


def write_episodes(path: Path, episodes: Sequence[dict[str, Any]]) -> None:
    """Write one JSONL file of readable episodes; a lone surrogate in one becomes "?". Raises InfrastructureError when the disk refuses."""
    with _disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "".join(json.dumps(episode, ensure_ascii=False) + "\n" for episode in episodes), encoding="utf-8", errors="replace"
        )


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InfrastructureError(f"cannot write {path.name}: {error.strerror}; free space and continue with --resume") from error
