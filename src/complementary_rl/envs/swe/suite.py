"""The suite `swe`: an issue, a shell and an editor in a sandbox, and hidden tests that decide."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from complementary_rl.envs.options import require_at_least
from complementary_rl.envs.protocol import Policy, StepResult, Suite
from complementary_rl.envs.swe import editor
from complementary_rl.envs.swe.grading import solved
from complementary_rl.envs.swe.sandbox import Limits, Result, Sandbox, require_bubblewrap
from complementary_rl.envs.swe.tasks import SweTask, change_of, lay_out, load
from complementary_rl.envs.swe.tools import MANUAL, Call, NotACall, parse
from complementary_rl.errors import UserError
from complementary_rl.readable import without_middle
from complementary_rl.seeds import derive_seed
from complementary_rl.types import Split, Task

_RULES = """\
You are in a repository of Python code, in /repo, that has a bug. Find the bug and mend it in the package's source, so that hidden \
tests of what the issue tells pass and nothing else breaks. Changes of test files do not count. There is no network. You have \
{turns} actions; what is not submitted by then is judged as it is.

Answer with exactly one call of a tool, its name first:
{manual}"""
_MARK_CHARS = len("[1,000,000,000 characters left out]")
_ACTIONS = ("view .", "bash ls", "bash grep -rn def . | head -n 20", "submit")


class Swe(Suite):
    """Suite ``swe``.

    `data` is a folder of tasks (see `tasks`). An episode has `max_turns` actions; a command `command_seconds`, and all tests together
    `test_seconds`; an observation has at most `observation_chars` characters. Raises UserError for options out of range, data that are
    none, and where bubblewrap cannot run.
    """

    name = "swe"
    needs = "bubblewrap (LGPL), a program of the system; tasks made from packages under licences of their own"

    def __init__(
        self,
        data: str,
        *,
        max_turns: int = 30,
        command_seconds: int = 20,
        test_seconds: int = 60,
        observation_chars: int = 8000,
    ) -> None:
        require_at_least(self.name, 1, max_turns=max_turns, command_seconds=command_seconds, test_seconds=test_seconds)
        require_at_least(self.name, 200, observation_chars=observation_chars)
        require_bubblewrap()
        self.data = Path(data).expanduser().resolve()
        self.max_turns, self.observation_chars = max_turns, observation_chars
        self.limits, self.test_limits = Limits(seconds=command_seconds), Limits(seconds=test_seconds)
        self.instructions = _RULES.format(turns=max_turns, manual=MANUAL)
        found = {f"{self.name}/{one.id}": one for one in load(data)}
        self._bugs = found
        self._tasks: dict[Split, list[Task]] = {
            split: [self._task(identity, one) for identity, one in found.items() if one.split == split]
            for split in ("train", "heldout")
        }

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._tasks[split]

    def make_env(self) -> "SweEnv":
        return SweEnv(self)

    def bug(self, task: Task) -> SweTask:
        """What is broken. Raises UserError if the task is not of this suite."""
        if task.id not in self._bugs:
            raise UserError(f"swe: there is no task {task.id!r} in this suite; was it made with other data?")
        return self._bugs[task.id]

    def expert(self, task: Task, seed: int) -> Policy:
        """Takes the bug back by the editor and submits."""
        change = change_of(self.bug(task).diff)
        mend = f"str_replace {change.path}\n<<<<<<<\n{change.after}=======\n{change.before}>>>>>>>"
        actions = iter([mend, "submit"])
        return lambda _: next(actions)

    def _task(self, identity: str, one: SweTask) -> Task:
        # The first line says what is wrong; all of it is what the episode opens with.
        description = f"Mend a bug in the Python package {one.repository}: {one.issue.partition(chr(10))[0]}"
        return Task(identity, self.name, description, derive_seed(identity), one.split, scope=self.name)


class SweEnv:
    """One repository at a time, in a sandbox of its own."""

    def __init__(self, suite: Swe) -> None:
        self._suite = suite
        self._sandbox: Sandbox | None = None
        self._bug: SweTask
        self._turns = 0

    def reset(self, task: Task, seed: int) -> tuple[str, dict[str, Any]]:
        # Nothing is left to chance: the task is the whole episode.
        self.close()
        self._bug = self._suite.bug(task)
        self._sandbox = Sandbox(self._suite.data / "tools", self._suite.limits)
        lay_out(self._bug, self._suite.data, self._sandbox.repository, broken=True)
        self._turns = 0
        listing = self._edit({"tool": "view", "path": ".", "first": 1, "last": 0})
        return self._shortened(f"{self._bug.issue}\n\n/repo holds:\n{listing}"), {"actions": _ACTIONS}

    def step(self, action: str) -> StepResult:
        """Do `action`. ``info`` has success and invalid (the text was no call of a tool)."""
        assert self._sandbox is not None, "step before reset"
        self._turns += 1
        invalid = submitted = False
        try:
            call = parse(action)
            submitted = call.tool == "submit"
            observation = "" if submitted else self._do(call)
        except NotACall as error:
            observation, invalid = str(error), True
        truncated = not submitted and self._turns >= self._suite.max_turns
        success = (submitted or truncated) and solved(
            self._bug, self._suite.data, self._sandbox.repository, self._suite.test_limits
        )
        if submitted:
            observation = "The hidden tests pass." if success else "Hidden tests fail."
        info = {"success": success, "invalid": invalid}
        return self._shortened(observation), float(success), submitted, truncated, info

    def close(self) -> None:
        if self._sandbox:
            self._sandbox.close()
            self._sandbox = None

    def _do(self, call: Call) -> str:
        assert self._sandbox is not None
        if call.arguments is not None:
            return self._edit(call.arguments)
        result = self._sandbox.run(["bash", "-c", call.command])
        status = f"\n(exit status {result.code})" if result.code and not result.stopped else ""
        return _told(result, f"{result.output.rstrip()}{status}".strip("\n") or "(no output)")

    def _edit(self, arguments: dict[str, str | int]) -> str:
        assert self._sandbox is not None
        result = self._sandbox.run(editor.COMMAND, editor.encoded(arguments))
        return _told(result, result.output.rstrip("\n"))

    def _shortened(self, text: str) -> str:
        most = self._suite.observation_chars
        if len(text) <= most:
            return text
        kept = max(0, most - _MARK_CHARS)
        return without_middle(text, kept - kept // 2, len(text) - kept // 2, f"{len(text) - kept:,} characters")


def _told(result: Result, text: str) -> str:
    return f"{text}\n(stopped: {result.stopped})" if result.stopped else text
