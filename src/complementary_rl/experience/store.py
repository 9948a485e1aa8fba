"""The bank file: opening, locking, transactions, backup, and what SQLite's errors mean.

Durability: WAL with ``synchronous=NORMAL``. A commit is in the operating system's hands before it is acknowledged, so a process
killed at any instant loses nothing acknowledged and cannot damage the file. Losing *power* may lose the last transactions (never
the file): a run continues from checkpoints, which are synced, and an fsync per commit (FULL) would cost milliseconds each for
nothing that resuming can use.
"""

import itertools
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from complementary_rl.durability import sync_path
from complementary_rl.errors import BankError, InfrastructureError
from complementary_rl.experience import schema
from complementary_rl.experience.writer_lock import WriterLock

_BUSY_TIMEOUT = 10.0
_DISK_ERRORS = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY}
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_NO_ACCESS = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY}


class BankStore:
    """One open bank file. Not thread-safe by itself: the bank's lock guards it.

    Writers hold an operating-system lock on ``<path>.lock`` for as long as they live (it goes with the process, however that
    ends), so there is at most one; readers never wait for it.
    """

    def __init__(self, path: Path, *, read_only: bool, make: bool = True, version: int = schema.VERSION) -> None:
        """Open; without `read_only` and with `make` an empty bank is made where there is none. Raises BankError when the file cannot be
        used.

        A file of an older schema is brought to `version`: for writing in the file, in one transaction; read-only in a copy in
        memory, which sees nothing that is written later.
        """
        self.path = path
        self.read_only = read_only
        self.may_be_new = make and not read_only
        _check_kind(path)
        self._lock = None if read_only else WriterLock(path)
        try:
            with errors(path):
                self._connection = _connect(path, read_only=read_only)
        except BaseException:
            if self._lock is not None:
                self._lock.release()
            raise
        try:
            with errors(path):
                self._prepare(version)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close and let others write. Idempotent."""
        self._connection.close()
        if self._lock is not None:
            self._lock.release()

    def meta(self) -> dict[str, str]:
        return dict(self.rows("SELECT name, value FROM meta"))

    def set_meta(self, **values: str) -> None:
        self.run_many("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """All rows of a query, as tuples."""
        with errors(self.path):
            return self._connection.execute(sql, parameters).fetchall()

    def stream(self, sql: str) -> Iterator[Any]:
        """The rows of a query one by one, for tables that need not fit in memory."""
        with errors(self.path):
            yield from self._connection.execute(sql)

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Execute a statement; returns the id of the row it inserted, if it inserted one."""
        with errors(self.path):
            return self._connection.execute(sql, parameters).lastrowid or 0

    def run_many(self, sql: str, parameters: Iterable[Sequence[Any]]) -> None:
        """Execute a statement once per parameter tuple."""
        with errors(self.path):
            self._connection.executemany(sql, parameters)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; when it returns, what it did is acknowledged. On any error everything in it is undone."""
        assert not self._connection.in_transaction, "transactions are nested by the bank, not by the store"
        self.run("BEGIN" if self.read_only else "BEGIN IMMEDIATE")
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            self._connection.rollback()
            raise

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """One consistent view for several queries, whoever writes meanwhile."""
        if self.read_only and not self._connection.in_transaction:
            with self.transaction():
                yield
        else:
            yield  # the only writer, and whoever reads holds the bank's lock

    def migrate(self, version: int = schema.VERSION) -> None:
        """Bring the tables to a schema version, in one transaction."""
        with self.transaction():
            for statement in itertools.chain.from_iterable(schema.MIGRATIONS[self._version() : version]):
                self.run(statement)
            self.run(f"PRAGMA application_id = {schema.APPLICATION_ID}")
            self.run(f"PRAGMA user_version = {version}")

    def tables(self) -> dict[str, dict[str, str]]:
        """Name and declared type of the columns of every table, in a fixed order."""
        names = self.rows(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY rowid"
        )
        return {name: {column: kind for _, column, kind, *_ in self.rows(f"PRAGMA table_info({name})")} for (name,) in names}

    def backup(self, destination: Path) -> None:
        """Copy the committed state to `destination`, replacing it in one step, synced to disk. What was there stays if it fails."""
        partial = destination.with_name(f".{destination.name}.partial")
        try:
            _remove(partial)
            with errors(destination):
                copy = sqlite3.connect(partial, isolation_level=None)
                try:
                    self._connection.backup(copy)
                    copy.execute("PRAGMA journal_mode = DELETE")
                finally:
                    copy.close()
            sync_path(partial)
            for leftover in _companions(destination):
                leftover.unlink(missing_ok=True)  # a write-ahead log of the file that was there would be played into the new one
            partial.replace(destination)
            sync_path(destination.parent)
        except OSError as error:
            raise InfrastructureError(f"{destination} cannot be written ({error.strerror}); free the disk and try again") from error
        finally:
            _remove(partial)

    def check(self) -> None:
        """Read the whole file. Raises BankError when it is damaged."""
        found = self.rows("PRAGMA quick_check(1)")[0][0]
        if found != "ok":
            raise _damaged(self.path, found)

    def _version(self) -> int:
        return int(self.rows("PRAGMA user_version")[0][0])

    def _prepare(self, wanted: int) -> None:
        application = self.rows("PRAGMA application_id")[0][0]
        version = self._version()
        empty = not self.rows("SELECT 1 FROM sqlite_master LIMIT 1")
        if empty and not self.may_be_new:
            raise no_bank_yet(self.path)
        if not empty and application != schema.APPLICATION_ID:
            raise BankError(f"{self.path} is an SQLite database but not an experience bank; give the bank.sqlite of a run")
        if version > schema.VERSION:
            raise BankError(
                f"{self.path} was written by a newer version of complementary-rl (bank schema {version}, this one reads up to "
                f"{schema.VERSION}); upgrade with `pip install -U complementary-rl`"
            )
        if self.read_only:
            if version < wanted:
                self._read_copy()
                self.migrate(wanted)
            return
        if not empty:
            self.check()
        self.run("PRAGMA journal_mode = WAL")
        self.run("PRAGMA synchronous = NORMAL")
        if version < wanted:
            self.migrate(wanted)

    def _read_copy(self) -> None:
        copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._connection.backup(copy)
        self._connection.close()
        self._connection = copy


def restore(source: Path, destination: Path) -> None:
    """Put a copy of the bank at `source` in the place of `destination`. Raises BankError when `source` is no usable bank or
    `destination` is in use."""
    lock = WriterLock(destination)
    try:
        store = BankStore(source, read_only=True)
        try:
            store.check()
            store.backup(destination)
        finally:
            store.close()
    finally:
        lock.release()


@contextmanager
def create(destination: Path, version: int) -> Iterator[BankStore]:
    """Fill a new bank of a schema version. It is brought to the present one and takes its place at `destination`, synced, when all
    went well; until then, and after any error, nothing is there. Raises BankError when there is something already."""
    lock = WriterLock(destination)
    partial = destination.with_name(f".{destination.name}.partial")
    try:
        if destination.exists():
            raise BankError(f"{destination} exists already; import into a directory that has no bank")
        _remove(partial)
        store = BankStore(partial, read_only=False, version=version)
        try:
            yield store
            store.migrate()
        finally:
            store.close()
        sync_path(partial)
        partial.replace(destination)
        sync_path(destination.parent)
    finally:
        _remove(partial)
        lock.release()


@contextmanager
def errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into what the user can act on.

    A disk that is full or fails is an InfrastructureError, a damaged file a BankError; anything else is a bug and passes.
    """
    try:
        yield
    except sqlite3.DatabaseError as error:
        primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if primary in _DAMAGE:
            raise _damaged(path, str(error)) from error
        if primary in _NO_ACCESS:
            raise BankError(
                f"{path} cannot be opened ({error}); check that it is a file and that you may read and write it"
            ) from error
        if primary in _DISK_ERRORS:
            raise InfrastructureError(
                f"{path}: {error}. Everything acknowledged before is intact and the bank will open again; free the disk "
                "(or the file) and resume"
            ) from error
        raise


def _connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    if read_only and not path.exists():
        raise BankError(f"there is no bank at {path}; give the directory of a run that has one")
    mode = "rwc"
    if read_only:
        # Without a write-ahead log and without the right to make one, SQLite must be told that nobody writes.
        nobody_writes = not os.access(path.parent, os.W_OK) and not path.with_name(path.name + "-wal").exists()
        mode = "ro&immutable=1" if nobody_writes else "ro"
    return sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=_BUSY_TIMEOUT,
    )


def no_bank_yet(path: Path) -> BankError:
    return BankError(f"{path} holds no bank yet; give the bank.sqlite of a run that has started")


def _check_kind(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise BankError(f"{path} is a {'folder' if path.is_dir() else 'special file'}, not a bank; give the bank.sqlite of a run")


def _damaged(path: Path, cause: str) -> BankError:
    return BankError(
        f"{path} is damaged or no bank ({cause}); restore it from a checkpoint of the run (checkpoints/step_N/bank.sqlite), "
        "for a run by resuming it"
    )


def _companions(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal")]


def _remove(path: Path) -> None:
    for file in [path, *_companions(path)]:
        file.unlink(missing_ok=True)
