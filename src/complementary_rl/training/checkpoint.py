"""Checkpoints: everything a run needs to continue, written aside and renamed, so that a torn one is never seen.

checkpoints/step_N/{actor/, extractor/, bank.sqlite, state.json}
"""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from complementary_rl.durability import sync_path
from complementary_rl.engines.protocol import Engine
from complementary_rl.errors import CheckpointError, InfrastructureError
from complementary_rl.experience.bank import Bank

_PREFIX = "step_"


def write_checkpoint(
    root: Path, step: int, *, engines: Sequence[Engine], bank: Bank | None, state: dict[str, Any], keep: int
) -> Path:
    """Write ``root/step_<step>`` and drop all but the newest `keep`. Raises InfrastructureError when the disk refuses."""
    final = root / f"{_PREFIX}{step}"
    partial, replaced = root / f".{final.name}.partial", root / f".{final.name}.replaced"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for engine in engines:
            engine.save(partial / engine.name)
        if bank is not None:
            bank.checkpoint_to(partial / "bank.sqlite")
        with (partial / "state.json").open("w", encoding="utf-8") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        if final.exists():
            # Never deleted in place: half a checkpoint would look like a whole one.
            shutil.rmtree(replaced, ignore_errors=True)
            final.rename(replaced)
        partial.rename(final)
        sync_path(root)
        shutil.rmtree(replaced, ignore_errors=True)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise InfrastructureError(
            f"cannot write the checkpoint of step {step}: {error.strerror}; earlier checkpoints are intact, free space and --resume"
        ) from error
    for old in checkpoints(root)[:-keep]:
        shutil.rmtree(old)
    return final


def recover_replaced(root: Path) -> None:
    """Put back checkpoints that a process died while replacing. Only for the one who holds the run's lock."""
    for replaced in root.glob(f".{_PREFIX}*.replaced"):
        final = root / replaced.name.removeprefix(".").removesuffix(".replaced")
        if not final.exists():
            replaced.rename(final)


def checkpoints(root: Path) -> list[Path]:
    """Complete checkpoints, oldest first."""
    found = [path for path in root.glob(f"{_PREFIX}*") if path.name.removeprefix(_PREFIX).isdigit()]
    return sorted(found, key=lambda path: int(path.name.removeprefix(_PREFIX)))


def read_state(checkpoint: Path) -> dict[str, Any]:
    """The state of a checkpoint. Raises CheckpointError when it is unreadable."""
    try:
        state = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{checkpoint} is not a usable checkpoint ({error}); delete it to continue from an earlier one"
        ) from error
    assert isinstance(state, dict)
    return state
