"""The suite `swe`: bugs seeded in packages, in bubblewrap or in containers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from complementary_rl.envs.protocol import Policy
from complementary_rl.envs.swe.bubblewrap import Bubblewrap, require_bubblewrap
from complementary_rl.envs.swe.docker import PYTHON_IMAGE, Containers, user_options
from complementary_rl.envs.swe.episode import RepositorySuite
from complementary_rl.envs.swe.grading import solved
from complementary_rl.envs.swe.sandbox import Backend, Limits, Sandbox
from complementary_rl.envs.swe.tasks import SweTask, change_of, lay_out, load
from complementary_rl.errors import UserError
from complementary_rl.types import Task


@dataclass(frozen=True, slots=True)
class Seeded:
    """A task of the folder `data`, as a `Problem`."""

    task: SweTask
    data: Path
    backend: Backend

    @property
    def issue(self) -> str:
        return self.task.issue

    def open(self, limits: Limits) -> Sandbox:
        sandbox = self.backend(self.data / "tools", limits)
        try:
            lay_out(self.task, self.data, sandbox.repository, broken=True)
        except BaseException:
            sandbox.close()
            raise
        return sandbox

    def solved(self, left: Sandbox, limits: Limits) -> bool:
        return solved(self.task, self.data, left.repository, limits, self.backend)


class Swe(RepositorySuite):
    """Suite ``swe``.

    `data` is a folder of tasks (see `tasks`); `sandbox` is ``"bubblewrap"``, or ``"docker"`` for containers of `image` (see `docker`),
    whose engine `docker_command` runs with `docker_options` besides. The other options are `RepositorySuite`'s. Raises UserError for
    options out of range, data that are none, and where the sandbox cannot run.
    """

    name = "swe"
    needs = "bubblewrap (LGPL), a program of the system, or Docker; tasks made from packages under licences of their own"

    def __init__(
        self,
        data: str,
        *,
        max_turns: int = 30,
        command_seconds: int = 20,
        test_seconds: int = 60,
        observation_chars: int = 8000,
        sandbox: str = "bubblewrap",
        image: str = "",
        docker_command: str = "docker",
        docker_options: Sequence[str] = (),
    ) -> None:
        super().__init__(
            max_turns=max_turns, command_seconds=command_seconds, test_seconds=test_seconds, observation_chars=observation_chars
        )
        backend = _backend(sandbox, image, docker_command, docker_options)
        folder = Path(data).expanduser().resolve()
        for one in load(data):
            # The issue's first line says what is wrong; all of it is what the episode opens with.
            description = f"Mend a bug in the Python package {one.repository}: {one.issue.partition(chr(10))[0]}"
            self.add(Seeded(one, folder, backend), f"{self.name}/{one.id}", description, one.split)

    def expert(self, task: Task, seed: int) -> Policy:
        """Takes the bug back by the editor and submits."""
        problem = self.problem(task)
        assert isinstance(problem, Seeded)
        change = change_of(problem.task.diff)
        mend = f"str_replace {change.path}\n<<<<<<<\n{change.after}=======\n{change.before}>>>>>>>"
        actions = iter([mend, "submit"])
        return lambda _: next(actions)


def _backend(sandbox: str, image: str, command: str, options: Sequence[str]) -> Backend:
    if sandbox == "bubblewrap":
        if image:
            raise UserError("swe: image is for sandbox = 'docker'")
        require_bubblewrap()
        return Bubblewrap
    if sandbox != "docker":
        raise UserError(f"swe: sandbox is {sandbox!r}; it must be 'bubblewrap' or 'docker'")
    containers = Containers(image or PYTHON_IMAGE, command, tuple(options))
    user_options(containers)
    return containers
