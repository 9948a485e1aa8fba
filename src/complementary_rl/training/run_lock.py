"""One process per run directory: a second `--resume` would cut the first one's files off under it."""

import fcntl
import os
from pathlib import Path

from complementary_rl.errors import UserError

FILE = "run.lock"


class RunLock:
    """Holds `directory` until `release`, or until the process ends, however that happens. Raises UserError while another holds it."""

    def __init__(self, directory: Path) -> None:
        self._file: int | None = os.open(directory / FILE, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.release()
            raise UserError(
                f"another process is training in {directory}; wait for it or stop it, then continue with --resume"
            ) from error

    def release(self) -> None:
        """Let others train here. Idempotent."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
