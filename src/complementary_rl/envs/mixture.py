"""Several suites in one run: each is a part with a weight, rules, turn limits, bank scopes and metrics of its own.

[env]
suite = "mixture"
[env.options.suites."minihack/dark-rooms"]
weight = 2.0
options = { rooms = 16 }
"""

import difflib
import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import Any

from complementary_rl.envs.protocol import Part, Policy, StepResult, Suite, TextEnv
from complementary_rl.envs.registry import make_suite, tasks_of
from complementary_rl.errors import UserError
from complementary_rl.types import UNNAMED_SCOPE, Split, Task

_SPLITS: tuple[Split, ...] = ("train", "heldout")
_SETTINGS = ("weight", "options", "suite")
_PATH = "env.options.suites"


@dataclass(frozen=True, slots=True)
class _Member:
    """A suite of the mixture. Its tasks keep their ids, so that they are the same games as in a run of that suite alone."""

    suite: Suite
    weight: float
    tasks: dict[Split, list[Task]]


class Mixture(Suite):
    """Suite ``mixture``: `suites` maps the name of each part to a table of

    - ``weight`` (1.0): its share of the groups, in relation to the other parts;
    - ``options`` ({}): keyword arguments of its suite;
    - ``suite``: registered name, ``module:attribute`` or file of the suite; the part's name if not given.

    Parts are ordered by name. Tasks that name no scope are filed under the name of their part. Raises UserError, with the dotted path of
    the setting, for unknown settings, values that do not fit, suites that cannot be made, and task ids that two parts share.
    """

    name = "mixture"

    def __init__(self, suites: dict[str, Any]) -> None:
        if not isinstance(suites, Mapping) or not suites:
            raise UserError(f'{_PATH} must name the suites to mix, such as [{_PATH}."minihack/dark-rooms"]')
        self._members = {name: _member(name, suites[name]) for name in sorted(suites)}
        self._part_of: dict[str, str] = {}
        for name, member in self._members.items():
            for task in chain.from_iterable(member.tasks.values()):
                other = self._part_of.setdefault(task.id, name)
                if other != name:
                    raise UserError(
                        f"{_PATH}: the parts {other!r} and {name!r} both have the task {task.id!r}; "
                        "give them options (such as another seed) that leave them no task in common"
                    )
        self.needs = ", ".join(dict.fromkeys(member.suite.needs for member in self._members.values() if member.suite.needs))
        self.step_seconds = max(member.suite.step_seconds for member in self._members.values())
        self.max_turns = max(member.suite.max_turns for member in self._members.values())

    def tasks(self, split: Split) -> Sequence[Task]:
        rounds = zip_longest(*(member.tasks[split] for member in self._members.values()))
        return [task for task in chain.from_iterable(rounds) if task is not None]

    def parts(self, split: Split) -> Sequence[Part]:
        return [Part(name, member.tasks[split], member.weight) for name, member in self._members.items()]

    def part_of(self, task: Task) -> str:
        """The name of the part a task belongs to. Raises UserError if it belongs to none."""
        if task.id not in self._part_of:
            raise UserError(f"mixture: no part has a task {task.id!r}; was it made with other options?")
        return self._part_of[task.id]

    def suite_of(self, task: Task) -> Suite:
        """The suite a task comes from; raises UserError as `part_of` does."""
        return self._members[self.part_of(task)].suite

    def instructions_for(self, task: Task) -> str:
        return self.suite_of(task).instructions_for(task)

    def max_turns_for(self, task: Task) -> int:
        return self.suite_of(task).max_turns_for(task)

    def task_at(self, task: Task, step: int) -> Task:
        return self.suite_of(task).task_at(task, step)

    def judge_entry(self, task: Task, text: str) -> bool | None:
        return self.suite_of(task).judge_entry(task, text)

    def expert(self, task: Task, seed: int) -> Policy | None:
        return self.suite_of(task).expert(task, seed)

    def make_env(self) -> "MixtureEnv":
        return MixtureEnv(self)


class MixtureEnv:
    """Plays the tasks of every part, with an environment of the part's own that is made when it is first needed."""

    def __init__(self, mixture: Mixture) -> None:
        self._mixture = mixture
        self._environments: dict[str, TextEnv] = {}
        self._playing: TextEnv | None = None

    def reset(self, task: Task, seed: int) -> tuple[str, dict[str, Any]]:
        part = self._mixture.part_of(task)
        if part not in self._environments:
            self._environments[part] = self._mixture.suite_of(task).make_env()
        self._playing = self._environments[part]
        return self._playing.reset(task, seed)

    def step(self, action: str) -> StepResult:
        assert self._playing is not None, "reset comes first"
        return self._playing.step(action)

    def close(self) -> None:
        with ExitStack() as stack:  # closes the others even where one raises
            for environment in self._environments.values():
                stack.callback(environment.close)


def _member(name: str, settings: object) -> _Member:
    key = name if re.fullmatch(r"[\w-]+", name) else json.dumps(name, ensure_ascii=False)
    path = f"{_PATH}.{key}"
    if not isinstance(settings, Mapping):
        raise UserError(f"{path} must be a table with any of {', '.join(_SETTINGS)}, not {settings!r}")
    for setting in settings:
        if setting not in _SETTINGS:
            near = difflib.get_close_matches(setting, _SETTINGS, n=1, cutoff=0.5)
            hint = f"did you mean '{path}.{near[0]}'?" if near else f"valid names here: {', '.join(_SETTINGS)}"
            raise UserError(f"{path}.{setting}: unknown setting; {hint}")
    weight, options = settings.get("weight", 1.0), settings.get("options", {})
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not (math.isfinite(weight) and weight > 0):
        raise UserError(f"{path}.weight must be a number above 0, not {weight!r}; leave the part out to play without it")
    if not isinstance(options, Mapping):
        raise UserError(f"{path}.options must be a table of the suite's options, not {options!r}")
    try:
        suite = make_suite(str(settings.get("suite", name)), **options)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    if len(suite.parts("train")) > 1:
        raise UserError(f"{path}: {suite.name!r} has several parts itself; name its suites here instead")
    tasks = {split: [_scoped(task, name) for task in tasks_of(suite, split)] for split in _SPLITS}
    return _Member(suite, float(weight), tasks)


def _scoped(task: Task, part: str) -> Task:
    # Suites whose tasks name no scope would share one shelf of the bank.
    return replace(task, scope=part) if task.scope == UNNAMED_SCOPE else task
