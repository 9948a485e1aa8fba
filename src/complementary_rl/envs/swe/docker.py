"""Commands in containers of Docker, or of an engine with the same command line: one container for each command.

So nothing of a command outlives it, and what it may use are the container's cgroup limits. Only the repository and /tmp, folders of the
host, are kept. The image must be there already.
"""

import functools
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from complementary_rl.envs.swe.sandbox import (
    ENVIRONMENT,
    FIRST_USER,
    REPOSITORY,
    TOOLS,
    Limits,
    Result,
    Sandbox,
    is_root,
)
from complementary_rl.errors import InfrastructureError, UserError

PYTHON_IMAGE = f"docker.io/library/python:{sys.version_info.major}.{sys.version_info.minor}-slim"
"""Has the same Python as ours, for which tasks were verified."""

_OPEN_FILES = 1024
_ENGINE_SECONDS = 60.0
_COPY_SECONDS = 600.0
# Should nobody be left to end a container, it ends itself this much later.
_GRACE_SECONDS = 30
_PATH = f"{TOOLS}/bin:/usr/local/bin:/usr/bin:/bin"
_BEGIN = 'echo "$1"; shift; exec timeout -s KILL "$@"'
# Of an engine that runs as root, of podman without root, of Docker without root.
_USERS = (("--user={user}:{user}",), ("--userns=keep-id", "--user={user}:{user}"), ("--user=0:0",))


@dataclass(frozen=True, slots=True)
class Containers:
    """How containers are made: `engine` is the program (docker, podman), `seen` where they see the repository.

    `options` are more options of ``docker run``; `environment` are the variables of commands. Use it as a `Backend`.
    """

    image: str
    engine: str = "docker"
    options: tuple[str, ...] = ()
    seen: str = REPOSITORY
    environment: tuple[tuple[str, str], ...] = tuple({**ENVIRONMENT, "PATH": _PATH}.items())

    def __call__(self, tools: Path | None = None, limits: Limits | None = None) -> "Docker":
        return Docker(self, tools, limits or Limits())


class Docker(Sandbox):
    """Raises UserError where there is no engine or no image, or where containers cannot write in folders of the host."""

    def __init__(self, containers: Containers, tools: Path | None, limits: Limits) -> None:
        options = user_options(containers)
        super().__init__(limits)
        self.seen = containers.seen
        self._options = options
        self._containers, self._tools, self._name, self._began = containers, tools, "", ""

    def command(self, command: Sequence[str], *, reads: bool) -> list[str]:
        self._name, self._began = f"crl-swe-{secrets.token_hex(8)}", secrets.token_hex(16)
        mounts = [(self.repository, self.seen, ""), (self.tmp, "/tmp", "")]
        if self._tools:
            mounts.append((self._tools.resolve(), TOOLS, ",readonly"))
        arguments = _run(self._containers.engine, self._name, self._options, self.user or os.getuid())
        arguments += [f"--mount=type=bind,src={source},dst={target}{mode}" for source, target, mode in mounts]
        arguments += [f"--memory={self.limits.memory}", f"--memory-swap={self.limits.memory}"]
        arguments += [f"--pids-limit={self.limits.processes}", f"--ulimit=cpu={int(self.limits.seconds) + 1}"]
        arguments += [f"--ulimit=fsize={self.limits.file_size}", f"--workdir={self.seen}"]
        arguments += [f"--env={name}={value}" for name, value in self._containers.environment]
        arguments += ["--interactive"] if reads else []
        longest = f"{self.limits.seconds + _GRACE_SECONDS:g}"
        return [*arguments, self._containers.image, "bash", "-c", _BEGIN, "bash", self._began, longest, *command]

    def run(self, command: Sequence[str], stdin: bytes = b"") -> Result:
        """As any sandbox does. Raises InfrastructureError where the engine fails, which a command cannot feign."""
        result = super().run(command, stdin)
        # The engine may warn of something first.
        _, began, rest = result.output.partition(f"{self._began}\n")
        if began:
            return replace(result, output=rest)
        if result.stopped:
            return replace(result, output="")
        raise InfrastructureError(f"{self._containers.engine} could not run a command: {result.output.strip()[:500]}")

    def kill(self, process: "subprocess.Popen[bytes]") -> None:
        if process.poll() is not None:
            return
        engine = self._containers.engine
        engine_says(engine, "rm", "--force", self._name)
        # It may wait for ever for somebody to read its output.
        process.kill()
        process.wait()
        # It may have begun the container only now.
        told = engine_says(engine, "rm", "--force", self._name)
        if told.returncode and "no such container" not in told.stderr.lower():
            raise InfrastructureError(f"{engine} could not end the container {self._name}: {told.stderr.strip()[:300]}")

    def environment(self) -> dict[str, str]:
        """Ours, in which the engine's program looks for its engine; commands do not see it."""
        return dict(os.environ)

    def fill(self) -> None:
        """Copy the repository out of the image."""
        engine, image = self._containers.engine, self._containers.image
        with _unstarted(engine, image) as container:
            copied = engine_says(engine, "cp", f"{container}:{self.seen}/.", str(self.repository), seconds=_COPY_SECONDS)
        if copied.returncode:
            raise InfrastructureError(f"{engine} could not copy {self.seen} out of {image}: {copied.stderr.strip()[:500]}")


def engine_says(engine: str, *arguments: str, seconds: float = _ENGINE_SECONDS) -> "subprocess.CompletedProcess[str]":
    """Run one command of the engine. Raises InfrastructureError where it does not end in time."""
    try:
        return subprocess.run(
            [engine, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(f"{engine} {arguments[0]} did not end within {seconds:g} s") from error


def require_engine(engine: str) -> None:
    """Raises UserError with the remedy where there is no engine."""
    if not shutil.which(engine):
        raise UserError(f"swe: there is no program {engine!r} here; install Docker or podman, or take sandbox = 'bubblewrap'")
    told = engine_says(engine, "info")
    if told.returncode:
        raise UserError(
            f"swe: {engine} has no engine to talk to ({told.stderr.strip()[:300]}); start it, or take sandbox = 'bubblewrap'"
        )


def require_image(engine: str, image: str) -> None:
    """Raises UserError where the image is not there: nobody waits for a download in the middle of an episode."""
    if engine_says(engine, "image", "inspect", image).returncode:
        raise UserError(f"swe: the image {image} is not here; fetch it: {engine} pull {image}")


@functools.cache
def user_options(containers: Containers) -> tuple[str, ...]:
    """Its options and those by which what containers write on the host belongs to who reads it there; `{user}` stands for the id.

    Found by trying, once. Raises UserError where there is no engine or image, or where none of them works.
    """
    engine, image = containers.engine, containers.image
    require_engine(engine)
    require_image(engine, image)
    user = FIRST_USER if is_root() else os.getuid()
    faults = []
    for options in ((*containers.options, *of_user) for of_user in _USERS):
        with tempfile.TemporaryDirectory(prefix="crl-swe-") as folder:
            shared = Path(folder, "shared")
            shared.mkdir()
            os.chown(shared, user, user if is_root() else -1)
            arguments = _run(engine, f"crl-swe-{secrets.token_hex(8)}", options, user)
            arguments += [f"--mount=type=bind,src={shared},dst=/tmp", image, "bash", "-c", "echo > /tmp/probe"]
            told = engine_says(engine, *arguments[1:])
            if not told.returncode and (shared / "probe").stat().st_uid == user:
                return options
            faults.append(told.stderr.strip()[:300] or "files belong to somebody else")
    raise UserError(f"swe: containers of {image} cannot write in folders of this machine: {faults[0]}")


def _run(engine: str, name: str, options: Sequence[str], user: int) -> list[str]:
    """The command line so far as it is the same for all containers."""
    arguments = [engine, "run", "--rm", f"--name={name}", "--pull=never", "--network=none", "--read-only", "--cap-drop=ALL"]
    arguments += ["--security-opt=no-new-privileges", "--security-opt=label=disable", "--hostname=sandbox"]
    arguments += [f"--ulimit=nofile={_OPEN_FILES}", "--ulimit=core=0"]
    return arguments + [option.replace("{user}", str(user)) for option in options]


@contextmanager
def _unstarted(engine: str, image: str) -> Iterator[str]:
    """A container that is only there to copy from."""
    name = f"crl-swe-{secrets.token_hex(8)}"
    made = engine_says(engine, "create", f"--name={name}", "--pull=never", "--network=none", image, "true")
    if made.returncode:
        raise InfrastructureError(f"{engine} could not open {image}: {made.stderr.strip()[:500]}")
    try:
        yield name
    finally:
        engine_says(engine, "rm", "--force", name)
