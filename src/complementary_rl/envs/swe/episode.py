"""An episode in a repository: an issue, tools in a sandbox, and a judgement at the end. What all suites of repositories share."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from complementary_rl.envs.options import require_at_least
from complementary_rl.envs.protocol import StepResult, Suite
from complementary_rl.envs.swe import editor
from complementary_rl.envs.swe.sandbox import REPOSITORY, Limits, Result, Sandbox
from complementary_rl.envs.swe.tools import MANUAL, Call, NotACall, parse
from complementary_rl.errors import UserError
from complementary_rl.readable import without_middle
from complementary_rl.seeds import derive_seed
from complementary_rl.types import Split, Task

_RULES = """\
You are in a repository of Python code, in {repository}, that has a bug. Find the bug and mend it in the package's source, so that hidden \
tests of what the issue tells pass and nothing else breaks. Changes of test files do not count. There is no network. You have \
{turns} actions; what is not submitted by then is judged as it is.

Answer with exactly one call of a tool, its name first:
{manual}"""
_MARK_CHARS = len("[1,000,000,000 characters left out]")
_ACTIONS = ("view .", "bash ls", "bash grep -rn def . | head -n 20", "submit")


class Problem(Protocol):
    """A repository to mend."""

    @property
    def issue(self) -> str: ...

    def open(self, limits: Limits) -> Sandbox:
        """A new sandbox with the repository as the actor finds it; `limits` are those of a command."""
        ...

    def solved(self, left: Sandbox, limits: Limits) -> bool:
        """Whether the hidden tests pass with what the actor left; `limits` are those of a run of tests."""
        ...


class RepositorySuite(Suite):
    """Problems by task id. An episode has `max_turns` actions; a command `command_seconds`, and one run of tests `test_seconds`, of which
    a judgement may take two; an observation has at most `observation_chars` characters. Raises UserError for options out of range.
    """

    def __init__(
        self,
        *,
        max_turns: int,
        command_seconds: int,
        test_seconds: int,
        observation_chars: int,
        limits: Limits | None = None,
        repository: str = REPOSITORY,
    ) -> None:
        require_at_least(self.name, 1, max_turns=max_turns, command_seconds=command_seconds, test_seconds=test_seconds)
        require_at_least(self.name, 200, observation_chars=observation_chars)
        self.max_turns, self.observation_chars = max_turns, observation_chars
        most = limits or Limits()
        self.limits, self.test_limits = replace(most, seconds=command_seconds), replace(most, seconds=test_seconds)
        self.step_seconds = command_seconds + 2.0 * test_seconds
        manual = MANUAL.format(repository=repository)
        self.instructions = _RULES.format(turns=max_turns, manual=manual, repository=repository)
        self._problems: dict[str, Problem] = {}
        self._tasks: dict[Split, list[Task]] = {"train": [], "heldout": []}

    def add(self, problem: Problem, identity: str, description: str, split: Split) -> None:
        """Offer a problem as a task."""
        self._problems[identity] = problem
        self._tasks[split].append(Task(identity, self.name, description, derive_seed(identity), split, scope=self.name))

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._tasks[split]

    def make_env(self) -> "RepositoryEnv":
        return RepositoryEnv(self)

    def problem(self, task: Task) -> Problem:
        """What is broken. Raises UserError if the task is not of this suite."""
        if task.id not in self._problems:
            raise UserError(f"{self.name}: there is no task {task.id!r} in this suite; was it made with other data?")
        return self._problems[task.id]


class RepositoryEnv:
    """One repository at a time, in a sandbox of its own."""

    def __init__(self, suite: RepositorySuite) -> None:
        self._suite = suite
        self._sandbox: Sandbox | None = None
        self._problem: Problem
        self._turns = 0

    def reset(self, task: Task, seed: int) -> tuple[str, dict[str, Any]]:
        # Nothing is left to chance: the task is the whole episode.
        self.close()
        self._problem = self._suite.problem(task)
        self._sandbox = self._problem.open(self._suite.limits)
        self._turns = 0
        listing = self._edit({"tool": "view", "path": ".", "first": 1, "last": 0})
        return self._shortened(f"{self._problem.issue}\n\n{self._sandbox.seen} holds:\n{listing}"), {"actions": _ACTIONS}

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
        success = (submitted or truncated) and self._problem.solved(self._sandbox, self._suite.test_limits)
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
