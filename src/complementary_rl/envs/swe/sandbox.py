"""Run commands of a model in bubblewrap: a repository and /tmp to write, a toolchain to read, no network, no other file of the host.

Namespaces keep a command in; resource limits bound each of its processes and their number, and a watch bounds what they use together,
which the kernel does only in cgroups, that ordinary users may not make. Limits on the number of processes do not hold for root, and
root owns the settings in /proc/sys: started by root, a sandbox runs under a user id that nobody else has.
"""

import functools
import itertools
import os
import re
import selectors
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from complementary_rl.errors import InfrastructureError, UserError

REPOSITORY = "/repo"
TOOLS = "/opt/tools"

_WATCH_SECONDS = 0.05
_DISK_SECONDS = 0.5
_OPEN_FILES = 256
_CHUNK = 1 << 16
_PAGE = os.sysconf("SC_PAGE_SIZE")
# Should memory of the host run out, the kernel's killer takes the sandbox first.
_FIRST_TO_GO = 'echo 1000 > /proc/self/oom_score_adj; exec "$@"'
# Folders that only root can enter, in mounts that nobody else sees, before root's rights are given up.
_FROM_ROOT = """set -e
echo 1000 > /proc/self/oom_score_adj
mount --bind "$1" /mnt; mount --bind "$2" /mnt/python; mount --bind "$3" /mnt/tools
user="$4"; shift 4
exec setpriv --reuid "$user" --regid "$user" --clear-groups "$@" """
_FIRST_USER = 1 << 30
_numbers = itertools.count()
_LIMITED = 'ulimit -c 0 -n {files} -f {file_size} -t {seconds} -v {memory} {processes}; exec "$@"'
# Since Linux 5.14 a limit on processes counts those of the sandbox, before that all of the user's.
_PER_NAMESPACE = (5, 14)
_ENVIRONMENT = {
    "PATH": f"{TOOLS}/bin:/opt/bin:/usr/bin:/bin",
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


class Sandbox:
    """A folder of its own with the repository (`repository`, seen as /repo) and /tmp, both kept from command to command.

    `tools` is a folder of Python packages, and of programs in its ``bin``, that commands can read; all users must be able to.
    Raises UserError where bubblewrap is missing or not allowed.
    """

    def __init__(self, tools: Path | None = None, limits: Limits | None = None) -> None:
        require_bubblewrap()
        self.limits = limits or Limits()
        self._folder = Path(tempfile.mkdtemp(prefix="crl-swe-"))
        self.repository = self._folder / "repo"
        self._tmp = self._folder / "tmp"
        for name in ("repo", "tmp", "python", "tools"):
            (self._folder / name).mkdir()
        self._used = self._files = 0
        self._user = _FIRST_USER + (os.getpid() % (1 << 20) << 10) + next(_numbers) % (1 << 10) if _is_root() else 0
        self._prefix = [*_bubblewrap(self._folder, tools, self._user), "--", "bash", "-c", _limited(self.limits), "bash"]

    def run(self, command: Sequence[str], stdin: bytes = b"") -> Result:
        """Run `command` in /repo until it ends or breaks a limit; then nothing of it runs any more. Texts must hold no NUL."""
        if self._user and self._folder.stat().st_uid != self._user:
            subprocess.run(["chown", "-R", "-h", f"{self._user}:{self._user}", str(self._folder)], check=True)
        output = bytearray()
        reading, writing = os.pipe()
        with tempfile.TemporaryFile() as given, os.fdopen(reading, "rb") as pipe, os.fdopen(writing, "wb") as end:
            given.write(stdin)
            given.seek(0)
            if self._user:
                # Only its owner can open a pipe again, as /dev/stderr does.
                os.fchown(writing, self._user, self._user)
            process = subprocess.Popen(
                [*self._prefix, *command],
                # A command must not find a file of ours that it could write, nor our environment in /proc/1.
                stdin=given if stdin else subprocess.DEVNULL,
                stdout=end,
                stderr=end,
                env={"PATH": os.environ.get("PATH", os.defpath)},
                start_new_session=True,
            )
            end.close()
            try:
                stopped = self._watch(process, pipe.fileno(), output)
            finally:
                _kill(process)
        self._used, self._files, _ = self._disk()
        stopped = stopped or self._disk_exceeded(self.limits.disk, self.limits.files)
        return Result(output[: self.limits.output].decode(errors="replace"), process.returncode, stopped)

    def read_tmp(self, name: str) -> str:
        """The text of a regular file that a command left in /tmp; empty where there is none, or one that is too large."""
        try:
            descriptor = os.open(self._tmp / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return ""
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            usable = stat.S_ISREG(status.st_mode) and status.st_size <= self.limits.file_size
            return file.read().decode(errors="replace") if usable else ""

    def close(self) -> None:
        """Remove the folder. Idempotent."""
        # Not shutil: what a command left may be nested deeper than Python's recursion goes, or be closed to its owner.
        remove = ["rm", "-rf", "--", str(self._folder)]
        if subprocess.run(remove, stderr=subprocess.DEVNULL, check=False).returncode:
            subprocess.run(["chmod", "-R", "u+rwx", "--", str(self._folder)], stderr=subprocess.DEVNULL, check=False)
            if subprocess.run(remove, stderr=subprocess.DEVNULL, check=False).returncode:
                raise InfrastructureError(f"{self._folder}, left by an episode, cannot be removed")

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
                    if broken := self._usage_exceeded(process.pid):
                        return broken
                    usage_due = time.monotonic() + _WATCH_SECONDS
                if now > disk_due:
                    if broken := self._disk_exceeded(disk, files):
                        return broken
                    disk_due = time.monotonic() + _DISK_SECONDS

    def _usage_exceeded(self, pid: int) -> str:
        found, threads, resident = [pid], 0, 0
        for one in found:
            try:
                tasks = list(Path(f"/proc/{one}/task").iterdir())
                resident += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * _PAGE
                for task in tasks:
                    found += map(int, (task / "children").read_text().split())
            except (FileNotFoundError, ProcessLookupError):
                continue  # It ended meanwhile.
            threads += len(tasks)
            if threads > self.limits.processes:
                return f"it had more than {self.limits.processes} processes and threads"
            if resident > self.limits.memory:
                return f"it used more than {self.limits.memory >> 20:,} MiB of memory"
        return ""

    def _disk_exceeded(self, disk: int, files: int) -> str:
        used, found, unknown = self._disk()
        if found > files:
            return f"there are more than {self.limits.files:,} files in {REPOSITORY} and /tmp"
        if used > disk:
            return f"{REPOSITORY} and /tmp hold more than {self.limits.disk >> 20:,} MiB"
        return unknown

    def _disk(self) -> tuple[int, int, str]:
        """Bytes and files in the repository and /tmp, and what hinders counting them."""
        used = files = 0
        unknown = ""
        folders: list[str | os.DirEntry[str]] = [str(self.repository), str(self._tmp)]
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
                unknown = f"a folder in {REPOSITORY} or /tmp cannot be measured ({error.strerror})"
        return used, files, unknown


@functools.cache
def require_bubblewrap() -> None:
    """Raises UserError with the remedy where commands cannot be run in a sandbox. Asked once if they can."""
    if not sys.platform.startswith("linux") or not shutil.which("bwrap"):
        raise UserError("swe: commands run in bubblewrap, which is not here; on Linux: apt-get install bubblewrap (0.8 or newer)")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("repo", "tmp", "python", "tools"):
            Path(folder, name).mkdir()
        user = _FIRST_USER if _is_root() else 0
        if user:
            os.chown(folder, user, user)
        probe = subprocess.run([*_bubblewrap(Path(folder), None, user), "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        raise UserError(
            f"swe: bubblewrap cannot make a sandbox here ({probe.stderr.strip()}). It must be 0.8 or newer and user namespaces be allowed: "
            "sysctl -w kernel.unprivileged_userns_clone=1 (Debian), kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), or, in "
            "a container, --security-opt seccomp=unconfined and an ordinary user"
        )


def _is_root() -> bool:
    """Whether we are root of the machine, and not only of a namespace."""
    return os.geteuid() == 0 and Path("/proc/self/uid_map").read_text().split()[:2] == ["0", "0"]


def _bubblewrap(folder: Path, tools: Path | None, user: int) -> list[str]:
    """The command before the command; `folder` has folders repo, tmp, python and tools; `user` is 0 but for root."""
    base = Path(sys.base_prefix).resolve()
    shown_tools = tools.resolve() if tools else folder / "tools"
    if user:
        arguments = ["unshare", "--mount", "--propagation", "private", "bash", "-c", _FROM_ROOT, "bash"]
        arguments += [str(folder), str(base), str(shown_tools), str(user)]
        folder, seen_base, shown_tools = Path("/mnt"), Path("/mnt/python"), Path("/mnt/tools")
    else:
        arguments, seen_base = ["bash", "-c", _FIRST_TO_GO, "bash"], base
    arguments += ["bwrap", "--die-with-parent", "--new-session", "--unshare-all", "--unshare-user", "--disable-userns"]
    arguments += ["--cap-drop", "ALL", "--uid", "1000", "--gid", "1000", "--hostname", "sandbox"]
    arguments += ["--proc", "/proc", "--dev", "/dev", "--ro-bind", "/usr", "/usr"]
    for system in map(Path, ("/bin", "/sbin", "/lib", "/lib32", "/lib64")):
        if system.is_symlink():
            arguments += ["--symlink", str(system.readlink()), str(system)]
        elif system.exists():
            arguments += ["--ro-bind", str(system), str(system)]
    for path in ("/etc/ld.so.cache", "/etc/alternatives"):
        arguments += ["--ro-bind-try", path, path]
    if not base.is_relative_to("/usr"):
        arguments += ["--ro-bind", str(seen_base), str(base)]
    for name in ("python", "python3"):
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        arguments += ["--symlink", str(base / "bin" / version), f"/opt/bin/{name}"]
    arguments += ["--ro-bind", str(shown_tools), TOOLS, "--bind", f"{folder}/repo", REPOSITORY, "--bind", f"{folder}/tmp", "/tmp"]
    # Semaphores of Python's multiprocessing are files there. What bubblewrap makes itself would be memory without a limit.
    arguments += ["--bind", f"{folder}/tmp", "/dev/shm"]
    for mount in ("/proc", "/dev", "/"):
        arguments += ["--remount-ro", mount]
    arguments += ["--chdir", REPOSITORY, "--clearenv"]
    for name, value in _ENVIRONMENT.items():
        arguments += ["--setenv", name, value]
    return arguments


def _limited(limits: Limits) -> str:
    kernel = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
    return _LIMITED.format(
        files=_OPEN_FILES,
        file_size=limits.file_size >> 10,
        seconds=int(limits.seconds) + 1,
        memory=limits.memory >> 10,
        processes=f"-u {limits.processes}" if kernel >= _PER_NAMESPACE else "",
    )


def _ended(process: "subprocess.Popen[bytes]") -> bool:
    try:
        process.wait(_WATCH_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """End bubblewrap and the first process in it, with which the kernel ends all others of its namespace."""
    if process.poll() is not None:
        return
    try:
        first = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for pid in first:
            os.kill(int(pid), 9)
    except (FileNotFoundError, ProcessLookupError):
        pass
    process.kill()
    process.wait()
