"""At most one process writes to a bank: an exclusive flock on ``<path>.lock``. On a file of its own, since closing any descriptor of a
database drops SQLite's locks on it."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from complementary_rl.errors import BankError

_SUFFIX = ".lock"


class WriterLock:
    """Holds the bank at `path` until `release`, or until the process ends, however that happens. The holder takes the lock's file away
    when it lets go, so nothing is left of an opening that failed. Raises BankError while another holds it, or where its file cannot be
    made."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + _SUFFIX)
        self._file: int | None = None
        while self._file is None:
            file = self._open(path)
            # Whoever held the file that was opened may have taken it away since: then its lock keeps nobody out.
            if self._is_there(file):
                self._file = file
            else:
                os.close(file)
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let others write. Idempotent."""
        if self._file is not None:
            with suppress(OSError):  # a file that stays is no lock: the lock goes with the descriptor
                self._path.unlink()
            os.close(self._file)
            self._file = None

    def _open(self, path: Path) -> int:
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise BankError(
                f"{path} cannot be opened for writing ({error.strerror}); choose a directory that exists and is writable"
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(file, 32).decode(errors="replace").strip()
            os.close(file)
            raise BankError(
                f"{path} is being written by another process{f' (pid {holder})' if holder else ''}; wait for it or stop it, "
                "or open the bank read-only"
            ) from error
        return file

    def _is_there(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), self._path.stat())
        except FileNotFoundError:
            return False
