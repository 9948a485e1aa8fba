"""Commands in bubblewrap: the host's own system and Python to read, and no other file of it.

Namespaces keep a command in; resource limits bound each of its processes and their number, and a watch bounds what they use together,
which the kernel does only in cgroups, that ordinary users may not make. Limits on the number of processes do not hold for root, and
root owns the settings in /proc/sys: started by root, a sandbox runs under a user id that nobody else has.
"""

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from complementary_rl.envs.swe.sandbox import ENVIRONMENT, FIRST_USER, REPOSITORY, TOOLS, Limits, Sandbox, is_root
from complementary_rl.errors import UserError

_OPEN_FILES = 256
_PAGE = os.sysconf("SC_PAGE_SIZE")
# Should memory of the host run out, the kernel's killer takes the sandbox first.
_FIRST_TO_GO = 'echo 1000 > /proc/self/oom_score_adj; exec "$@"'
# Folders that only root can enter, in mounts that nobody else sees, before root's rights are given up.
_FROM_ROOT = """set -e
echo 1000 > /proc/self/oom_score_adj
mount --bind "$1" /mnt; mount --bind "$2" /mnt/python; mount --bind "$3" /mnt/tools
user="$4"; shift 4
exec setpriv --reuid "$user" --regid "$user" --clear-groups "$@" """
_LIMITED = 'ulimit -c 0 -n {files} -f {file_size} -t {seconds} -v {memory} {processes}; exec "$@"'
# Since Linux 5.14 a limit on processes counts those of the sandbox, before that all of the user's.
_PER_NAMESPACE = (5, 14)
_PATH = f"{TOOLS}/bin:/opt/bin:/usr/bin:/bin"


class Bubblewrap(Sandbox):
    """`tools` is a folder of Python packages, and of programs in its ``bin``, that commands can read; all users must be able to.

    Raises UserError where bubblewrap is missing or not allowed.
    """

    def __init__(self, tools: Path | None = None, limits: Limits | None = None) -> None:
        require_bubblewrap()
        super().__init__(limits or Limits())
        for name in ("python", "tools"):
            (self.folder / name).mkdir()
        self._prefix = [*_bubblewrap(self.folder, tools, self.user), "--", "bash", "-c", _limited(self.limits), "bash"]

    def command(self, command: Sequence[str], *, reads: bool) -> list[str]:
        return [*self._prefix, *command]

    def usage_exceeded(self, process: "subprocess.Popen[bytes]") -> str:
        found, threads, resident = [process.pid], 0, 0
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

    def kill(self, process: "subprocess.Popen[bytes]") -> None:
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


@functools.cache
def require_bubblewrap() -> None:
    """Raises UserError with the remedy where commands cannot be run in a sandbox. Asked once if they can."""
    if not sys.platform.startswith("linux") or not shutil.which("bwrap"):
        raise UserError("swe: commands run in bubblewrap, which is not here; on Linux: apt-get install bubblewrap (0.8 or newer)")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("repo", "tmp", "python", "tools"):
            Path(folder, name).mkdir()
        user = FIRST_USER if is_root() else 0
        if user:
            os.chown(folder, user, user)
        probe = subprocess.run([*_bubblewrap(Path(folder), None, user), "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        raise UserError(
            f"swe: bubblewrap cannot make a sandbox here ({probe.stderr.strip()}). It must be 0.8 or newer and user namespaces be allowed: "
            "sysctl -w kernel.unprivileged_userns_clone=1 (Debian), kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), or, in "
            "a container, --security-opt seccomp=unconfined and an ordinary user"
        )


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
    for name, value in ({**ENVIRONMENT, "PATH": _PATH}).items():
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
