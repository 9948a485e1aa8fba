"""`check_env`: does a suite keep the protocol? For authors of environments; behind `crl envs check NAME`.

Each episode is played twice with the same actions: first all side by side, each in a new environment, then one after the other in
used ones. What differs between the two is not determined by (task, seed, actions), or leaks from one episode into another.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from complementary_rl.envs.crew import Crew
from complementary_rl.envs.playtest import Playtest
from complementary_rl.envs.protocol import Suite
from complementary_rl.errors import EnvironmentFault, UserError
from complementary_rl.types import Split, Task

_SHOWN_PROBLEMS = 10
_SPLITS: tuple[Split, ...] = ("train", "heldout")


@dataclass(slots=True)
class Report:
    """What `check_env` found. `problems` must be mended; `notes` are worth knowing. ``str(report)`` is for reading."""

    suite: str
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    tasks: dict[str, int] = field(default_factory=dict)
    episodes: int = 0
    turns: int = 0
    successes: int = 0
    reset_seconds: float = 0.0
    step_seconds: float = 0.0
    sample: str = ""

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    def __str__(self) -> str:
        lines = [f"{self.suite}: {'ok' if self.ok else f'{len(self.problems)} problem(s)'}"]
        lines += [f"  problem   {problem}" for problem in self.problems[:_SHOWN_PROBLEMS]]
        if len(self.problems) > _SHOWN_PROBLEMS:
            lines.append(f"  problem   … and {len(self.problems) - _SHOWN_PROBLEMS} more")
        lines += [f"  note      {note}" for note in self.notes]
        lines.append(f"  tasks     {self.tasks.get('train', 0)} train, {self.tasks.get('heldout', 0)} held-out")
        lines.append(f"  played    {self.episodes} episodes, each twice; {self.turns} turns, {self.successes} successes")
        if self.step_seconds:
            rate = self.turns / self.step_seconds
            lines.append(f"  speed     {1e3 * self.reset_seconds / self.episodes:.1f} ms a reset, {rate:.0f} steps/s")
        if self.sample:
            lines += ["  an episode opens with", *(f"    | {line}" for line in self.sample.splitlines())]
        return "\n".join(lines)


def check_env(suite: Suite, *, episodes: int = 4, seed: int = 0, timeout: float = 10.0) -> Report:
    """Play `episodes` episodes of both splits with odd and random texts and report what breaks the protocol; never raises for it.

    Actions are drawn from ``info["actions"]`` where it is given, from the words of the instructions and observations, and from texts
    that a model might well produce.
    `timeout` is the seconds one reset or step may take, unless the suite's `step_seconds` are more. Raises
    UserError when `episodes` is below 1.
    """
    if episodes < 1:
        raise UserError(f"episodes is {episodes}; at least one must be played")
    report = Report(str(getattr(suite, "name", type(suite).__name__)))
    crew = Crew(1)
    (outcome,) = crew.run(lambda _: _check_suite(suite, report), 1, timeout)
    if isinstance(outcome, EnvironmentFault):
        report.problems.append(f"the suite's attributes or tasks(): {outcome.kind}: {outcome}")
    elif outcome:
        _check_closing(suite, report, crew, timeout)
        if report.ok:
            _play(suite, outcome, episodes, seed, timeout if suite.step_seconds < timeout else suite.step_seconds + 1, report)
    crew.stop()
    return report


def _check_suite(suite: Suite, report: Report) -> list[Task]:
    """Check attributes and tasks; returns all tasks, train and held-out by turns, or none if they cannot be played."""
    # Typed as object: what the author wrote need not be what the annotations promise.
    name, instructions, max_turns = (_attribute(suite, attribute) for attribute in ("name", "instructions", "max_turns"))
    if not isinstance(name, str) or not name:
        report.problems.append("name must be a text that is not empty")
    if not isinstance(instructions, str):
        report.problems.append(f"instructions must be text, not {type(instructions).__name__}")
    if not isinstance(max_turns, int) or max_turns < 1:
        report.problems.append(f"max_turns must be a whole number of at least 1, not {max_turns!r}")
    step_seconds = _attribute(suite, "step_seconds")
    if not isinstance(step_seconds, int | float) or not 0 <= step_seconds < math.inf:
        report.problems.append(f"step_seconds must be a finite number of at least 0, not {step_seconds!r}")
    splits = {split: list(suite.tasks(split)) for split in _SPLITS}
    for split, tasks in splits.items():
        report.tasks[split] = len(tasks)
        report.problems += _task_problems(split, tasks)
        if not report.problems and [task.id for task in suite.tasks(split)] != [task.id for task in tasks]:
            report.problems.append(f"tasks({split!r}) gives other tasks, or another order, when asked again")
    if not splits["train"]:
        report.problems.append("tasks('train') is empty: there is nothing to train on")
    if not splits["heldout"]:
        report.notes.append("there are no held-out tasks: evaluation can only use the training tasks")
    if not report.problems:
        report.problems += [problem for split, tasks in splits.items() for problem in _rule_problems(suite, split, tasks)]
    if report.problems:
        return []
    report.problems += _overlaps(splits["train"], splits["heldout"])
    verdict: object = suite.judge_entry(splits["train"][0], "an entry that says nothing")
    if verdict is not None and not isinstance(verdict, bool):
        report.problems.append(f"judge_entry must return True, False or None, not {verdict!r}")
    longest = max(len(splits["train"]), len(splits["heldout"]))
    return [splits[split][index] for index in range(longest) for split in _SPLITS if index < len(splits[split])]


def _attribute(suite: Suite, name: str) -> object:
    return getattr(suite, name, None)


def _task_problems(split: Split, tasks: Sequence[object]) -> list[str]:
    problems = []
    ids = set()
    for task in tasks:
        if not isinstance(task, Task):
            return [f"tasks({split!r}) must hold complementary_rl.types.Task, not {type(task).__name__}"]
        if task.id in ids:
            problems.append(f"tasks({split!r}) holds the id {task.id!r} twice")
        ids.add(task.id)
        if task.split != split:
            problems.append(f"task {task.id!r} of tasks({split!r}) says split={task.split!r}")
        if not str(task.description).strip():
            problems.append(
                f"task {task.id!r} has no description; it is shown to the actor and is the key under which experience is found"
            )
    return problems


def _rule_problems(suite: Suite, split: Split, tasks: Sequence[Task]) -> list[str]:
    """What is wrong with what the suite says of single tasks; of each kind of problem the first."""
    problems: dict[str, str] = {}
    parts = {task.id: part.name for part in suite.parts(split) for task in part.tasks}
    for task in tasks:
        instructions: object = suite.instructions_for(task)
        max_turns: object = suite.max_turns_for(task)
        part = suite.part_of(task)
        if not isinstance(instructions, str):
            problems.setdefault("rules", f"instructions_for({task.id!r}) must be text, not {type(instructions).__name__}")
        if not isinstance(max_turns, int) or max_turns < 1:
            problems.setdefault("limit", f"max_turns_for({task.id!r}) must be a whole number of at least 1, not {max_turns!r}")
        if parts.pop(task.id, None) != part:
            problems.setdefault("part", f"part_of({task.id!r}) is {part!r}, but parts({split!r}) has it elsewhere, or not at all")
    if parts:
        problems.setdefault("part", f"parts({split!r}) has the task {next(iter(parts))!r}, which tasks({split!r}) has not")
    return list(problems.values())


def _overlaps(train: Sequence[Task], heldout: Sequence[Task]) -> list[str]:
    ids = {task.id for task in train}
    contents = {(task.description, task.seed) for task in train}
    problems = []
    for task in heldout:
        if task.id in ids:
            problems.append(f"task {task.id!r} is in both splits: held-out tasks must not be trained on")
        elif (task.description, task.seed) in contents:
            problems.append(
                f"held-out task {task.id!r} has the description and the seed of a training task: they are the same task"
            )
    return problems


def _check_closing(suite: Suite, report: Report, crew: Crew, timeout: float) -> None:
    (environment,) = crew.run(lambda _: suite.make_env(), 1, timeout)
    if isinstance(environment, EnvironmentFault):
        report.problems.append(f"make_env(): {environment.kind}: {environment}")
        return
    (outcome,) = crew.run(lambda _: environment.close(), 1, timeout)
    if isinstance(outcome, EnvironmentFault):
        report.problems.append(f"close(): {outcome.kind}: {outcome}")


def _play(suite: Suite, tasks: Sequence[Task], episodes: int, seed: int, timeout: float, report: Report) -> None:
    test = Playtest(suite, [tasks[index % len(tasks)] for index in range(episodes)], seed=seed, timeout=timeout)
    test.run()
    report.problems += test.problems
    report.notes += test.notes
    report.episodes = len(test.episodes)
    report.turns = sum(len(episode.steps) for episode in test.episodes)
    report.successes = sum(episode.success for episode in test.episodes)
    report.reset_seconds, report.step_seconds = test.reset_seconds, test.step_seconds
    report.sample = test.episodes[0].opening
