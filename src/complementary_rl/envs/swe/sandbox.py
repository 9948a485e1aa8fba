"""Run commands of a model where they can do no harm: a repository and /tmp to write, a toolchain to read, no network, nothing of the host.

What isolates is a subclass's; what all share is here: the folder that is kept from command to command, and the watch over time, output
and disk.
"""

import itertools
import os
import selectors
import stat
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from complementary_rl.errors import InfrastructureError

REPOSITORY = "/repo"
"""Where commands see the repository."""
TOOLS = "/opt/tools"
"""Where they see Python packages that their own Python does not have, such as pytest."""
FIRST_USER = 1 << 30
"""Started by root, commands run under ids from this one on, which nobody else has."""

_WATCH_SECONDS = 0.05
_DISK_SECONDS = 0.5
_CHUNK = 1 << 16
_numbers = itertools.count()
ENVIRONMENT = {
    "PYTHONPATH": f"{REPOSITORY}/src:{REPOSITORY}:{TOOLS}",
    "PYTHONHASHSEED": "0",
    # Plugins that happen to be installed beside the host's Python.
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    # Stale or planted bytecode would hide what the source says.
    "PYTHONDONTWRITEBYTECODE": "1",
    "HOME": "/tmp",
    "USER": "user",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "OMP_NUM_THREADS": "1",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """What one command may use; sizes in bytes.

    `seconds` of the wall clock (and of the processor, for each process); `memory` resident in all processes together, and address space
    of each; `processes` and threads; `file_size` of one file; `disk` and `files` in the repository and /tmp together; `output` it writes.
    """

    seconds: float = 30.0
    memory: int = 1 << 30
    processes: int = 64
    file_size: int = 64 << 20
    disk: int = 256 << 20
    files: int = 20_000
    output: int = 4 << 20


@dataclass(frozen=True, slots=True)
class Result:
    """`output` is stdout and stderr as they came; `code` the exit status; `stopped` the limit that ended it, empty if none did."""

    output: str
    code: int
    stopped: str = ""


class Sandbox(ABC):
    """A folder of its own with the repository (`repository`, seen as `seen`) and /tmp (`tmp`), both kept from command to command.

    `user` is the id that commands run under where root started them, else 0.
    """

    seen: str = REPOSITORY

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.folder = Path(tempfile.mkdtemp(prefix="crl-swe-"))
        self.repository = self.folder / "repo"
        self.tmp = self.folder / "tmp"
        self.repository.mkdir()
        self.tmp.mkdir()
        self._used = self._files = 0
        self.user = FIRST_USER + (os.getpid() % (1 << 20) << 10) + next(_numbers) % (1 << 10) if is_root() else 0

    @abstractmethod
    def command(self, command: Sequence[str], *, reads: bool) -> list[str]:
        """What runs `command` in the sandbox; it `reads` its standard input, or has none."""

    @abstractmethod
    def kill(self, process: "subprocess.Popen[bytes]") -> None:
        """End, and wait for, `process`, which ran what `command` gave and may have ended, and all that it began."""

    def usage_exceeded(self, process: "subprocess.Popen[bytes]") -> str:
        """The limit on memory or processes that is broken now, where nothing else sees to it; else empty."""
        return ""

    def environment(self) -> dict[str, str]:
        """Of `process`: commands must not find ours in /proc/1."""
        return {"PATH": os.environ.get("PATH", os.defpath)}

    def run(self, command: Sequence[str], stdin: bytes = b"") -> Result:
        """Run `command` in the repository until it ends or breaks a limit; then nothing of it runs any more. Texts must hold no NUL."""
        if self.user and self.folder.stat().st_uid != self.user:
            subprocess.run(["chown", "-R", "-h", f"{self.user}:{self.user}", str(self.folder)], check=True)
        output = bytearray()
        reading, writing = os.pipe()
        with tempfile.TemporaryFile() as given, os.fdopen(reading, "rb") as pipe, os.fdopen(writing, "wb") as end:
            given.write(stdin)
            given.seek(0)
            if self.user:
                # Only its owner can open a pipe again, as /dev/stderr does.
                os.fchown(writing, self.user, self.user)
            process = subprocess.Popen(
                self.command(command, reads=bool(stdin)),
                # A command must not find a file of ours that it could write.
                stdin=given if stdin else subprocess.DEVNULL,
                stdout=end,
                stderr=end,
                env=self.environment(),
                # Programs of engines may leave a file where they are called.
                cwd=self.folder,
                start_new_session=True,
            )
            end.close()
            try:
                stopped = self._watch(process, pipe.fileno(), output)
            finally:
                self.kill(process)
        self._used, self._files, _ = self._disk()
        stopped = stopped or self._disk_exceeded(self.limits.disk, self.limits.files)
        return Result(output[: self.limits.output].decode(errors="replace"), process.returncode, stopped)

    def read_tmp(self, name: str) -> str:
        """The text of a regular file that a command left in /tmp; empty where there is none, or one that is too large."""
        try:
            descriptor = os.open(self.tmp / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return ""
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            usable = stat.S_ISREG(status.st_mode) and status.st_size <= self.limits.file_size
            return file.read().decode(errors="replace") if usable else ""

    def close(self) -> None:
        """Remove the folder. Idempotent."""
        # Not shutil: what a command left may be nested deeper than Python's recursion goes, or be closed to its owner.
        remove = ["rm", "-rf", "--", str(self.folder)]
        if subprocess.run(remove, stderr=subprocess.DEVNULL, check=False).returncode:
            subprocess.run(["chmod", "-R", "u+rwx", "--", str(self.folder)], stderr=subprocess.DEVNULL, check=False)
            if subprocess.run(remove, stderr=subprocess.DEVNULL, check=False).returncode:
                raise InfrastructureError(f"{self.folder}, left by an episode, cannot be removed")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _watch(self, process: "subprocess.Popen[bytes]", pipe: int, output: bytearray) -> str:
        """Collect output until the command ends; returns the limit it broke, or nothing."""
        # Where there is too much already, a command may still remove some.
        disk, files = max(self.limits.disk, self._used), max(self.limits.files, self._files)
        now = time.monotonic()
        deadline, usage_due, disk_due = now + self.limits.seconds, now + _WATCH_SECONDS, now + _DISK_SECONDS
        finished = ended = False
        with selectors.DefaultSelector() as ready:
            ready.register(pipe, selectors.EVENT_READ)
            while True:
                if not finished and ready.select(_WATCH_SECONDS):
                    chunk = os.read(pipe, _CHUNK)
                    output += chunk
                    finished = not chunk
                elif ended:
                    return ""
                else:
                    # What it wrote last may still be in the pipe: it is read once more.
                    ended = _ended(process)
                now = time.monotonic()
                if now > deadline:
                    return f"it ran longer than {self.limits.seconds:g} seconds"
                if len(output) > self.limits.output:
                    return f"it wrote more than {self.limits.output:,} bytes of output"
                if now > usage_due:
                    if broken := self.usage_exceeded(process):
                        return broken
                    usage_due = time.monotonic() + _WATCH_SECONDS
                if now > disk_due:
                    if broken := self._disk_exceeded(disk, files):
                        return broken
                    disk_due = time.monotonic() + _DISK_SECONDS

    def _disk_exceeded(self, disk: int, files: int) -> str:
        used, found, unknown = self._disk()
        if found > files:
            return f"there are more than {self.limits.files:,} files in {self.seen} and /tmp"
        if used > disk:
            return f"{self.seen} and /tmp hold more than {self.limits.disk >> 20:,} MiB"
        return unknown

    def _disk(self) -> tuple[int, int, str]:
        """Bytes and files in the repository and /tmp, and what hinders counting them."""
        used = files = 0
        unknown = ""
        folders: list[str | os.DirEntry[str]] = [str(self.repository), str(self.tmp)]
        for folder in folders:
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        files += 1
                        used += entry.stat(follow_symlinks=False).st_blocks * 512
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(entry)
            except FileNotFoundError:
                continue
            except OSError as error:
                # Too deep a path or a closed folder could hide anything.
                unknown = f"a folder in {self.seen} or /tmp cannot be measured ({error.strerror})"
        return used, files, unknown


class Backend(Protocol):
    """Makes sandboxes. `tools` is a folder of Python packages, and of programs in its ``bin``, that commands can read."""

    def __call__(self, tools: Path | None = None, limits: Limits | None = None) -> Sandbox: ...


def is_root() -> bool:
    """Whether we are root of the machine, and not only of a namespace."""
    return os.geteuid() == 0 and Path("/proc/self/uid_map").read_text().split()[:2] == ["0", "0"]


def _ended(process: "subprocess.Popen[bytes]") -> bool:
    try:
        process.wait(_WATCH_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True
