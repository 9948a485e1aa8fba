"""The part of `check_env` that plays: every episode twice, with random and odd actions, noting whatever breaks the protocol."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from complementary_rl.envs.playing import babble
from complementary_rl.envs.pool import EnvPool
from complementary_rl.envs.protocol import StepResult, Suite
from complementary_rl.errors import EnvironmentFault
from complementary_rl.seeds import derive_seed, rng
from complementary_rl.types import Task

# Texts a language model might send where an action is expected.
_ODD_ACTIONS = ("", "?", "I am not sure what to do.", "\u65e5\u672c\u8a9e \U0001f600", "<|im_end|>", "north\nnorth", "x" * 5000)
_ODD_SHARE = 0.15
_OFFERED_SHARE = 0.5
_QUOTE_CHARS = 80
_WORKERS = 8


@dataclass(slots=True)
class Played:
    """One episode: `steps[t]` is (observation, reward, terminated, truncated, success) after ``actions[t]``.

    `offered` is the newest ``info["actions"]``.
    """

    key: str
    task: Task
    seed: int
    opening: str = ""
    actions: list[str] = field(default_factory=list)
    steps: list[tuple[object, ...]] = field(default_factory=list)
    offered: list[str] = field(default_factory=list)
    over: bool = False
    failed: bool = False

    @property
    def success(self) -> bool:
        """Whether the environment said so when the episode ended."""
        return bool(self.steps) and self.steps[-1][-1] is True

    def __str__(self) -> str:
        return f"task {self.task.id!r}, seed {self.seed}"


class Playtest:
    """Plays an episode of each task given. After `run`, read `problems`, `notes`, `episodes` and the seconds of the second pass."""

    def __init__(self, suite: Suite, tasks: Sequence[Task], *, seed: int, timeout: float) -> None:
        self.episodes = [Played(str(i), task, derive_seed("check-env", seed, i)) for i, task in enumerate(tasks)]
        self.problems: list[str] = []
        self.notes: list[str] = []
        self.reset_seconds = 0.0
        self.step_seconds = 0.0
        self._suite = suite
        self._pool = EnvPool(suite, timeout=timeout, workers=min(len(tasks), _WORKERS))
        self._kinds: set[str] = set()

    def run(self) -> None:
        """Play side by side, then again one after the other. What breaks is listed once per kind."""
        try:
            self._side_by_side()
            for episode in self.episodes:
                # One that hangs would cost the time limit each time.
                if not episode.failed and "hung" not in self._kinds:
                    self._again(episode)
        finally:
            self._pool.close()

    def _side_by_side(self) -> None:
        for episode, result in zip(self.episodes, self._pool.reset([(e.key, e.task, e.seed) for e in self.episodes]), strict=True):
            if isinstance(result, EnvironmentFault):
                self._fault(episode, "reset", result)
            else:
                episode.opening = result[0]
                self._offer(episode, result[1])
        limits = {episode.key: self._suite.max_turns_for(episode.task) for episode in self.episodes}
        for turn in range(max(limits.values())):
            active = [e for e in self.episodes if turn < limits[e.key] and not (e.over or e.failed)]
            for episode in active:
                episode.actions.append(self._action(episode, turn))
            for episode, outcome in zip(active, self._pool.step([(e.key, e.actions[-1]) for e in active]), strict=True):
                self._record(episode, outcome)
        unfinished = [limits[episode.key] for episode in self.episodes if not (episode.over or episode.failed)]
        for limit in sorted(set(unfinished)):
            count = unfinished.count(limit)
            self.notes.append(f"{count} episode(s) still ran after max_turns = {limit} actions; a run ends them as failures")
        self._pool.release([episode.key for episode in self.episodes])

    def _record(self, episode: Played, outcome: StepResult | EnvironmentFault) -> None:
        if isinstance(outcome, EnvironmentFault):
            self._fault(episode, f"step({_quote(episode.actions[-1])})", outcome)
            return
        episode.steps.append(_comparable(outcome))
        _, _, terminated, truncated, info = outcome
        self._offer(episode, info)
        episode.over = terminated or truncated

    def _again(self, episode: Played) -> None:
        key = f"{episode.key}/again"
        start = perf_counter()
        (result,) = self._pool.reset([(key, episode.task, episode.seed)])
        self.reset_seconds += perf_counter() - start
        if isinstance(result, EnvironmentFault):
            self._fault(episode, "a second reset", result)
            return
        if result[0] != episode.opening:
            self._differs(episode, "the opening observation", episode.opening, result[0])
        start = perf_counter()
        for action, before in zip(episode.actions, episode.steps, strict=True):
            (outcome,) = self._pool.step([(key, action)])
            if isinstance(outcome, EnvironmentFault):
                self._fault(episode, f"step({_quote(action)}) in a used environment", outcome)
                return
            now = _comparable(outcome)
            for name, old, new in zip(("observation", "reward", "terminated", "truncated", "success"), before, now, strict=True):
                if old != new:
                    self._differs(episode, f"after {_quote(action)} the {name}", old, new)
            if now != before:
                break
        self.step_seconds += perf_counter() - start
        self._pool.release([key])

    def _action(self, episode: Played, turn: int) -> str:
        random = rng("check-env", episode.seed, turn)
        observation = str(episode.steps[-1][0]) if episode.steps else episode.opening
        draw = random.random()
        if episode.offered and draw < _OFFERED_SHARE:
            return episode.offered[random.integers(len(episode.offered))]
        words = "" if draw > 1 - _ODD_SHARE else babble(random, self._suite.instructions_for(episode.task), observation)
        return words or _ODD_ACTIONS[random.integers(len(_ODD_ACTIONS))]

    def _offer(self, episode: Played, info: dict[str, Any]) -> None:
        offered: object = info.get("actions", episode.offered)
        if isinstance(offered, Sequence) and not isinstance(offered, str) and all(isinstance(action, str) for action in offered):
            episode.offered = list(offered)
        else:
            self._problem("actions", f"{episode}: info['actions'] must be a sequence of texts, not {_quote(offered)}")

    def _fault(self, episode: Played, where: str, fault: EnvironmentFault) -> None:
        episode.failed = True
        self._problem(fault.kind, f"{episode}: {where}: {fault.kind}: {fault}")

    def _differs(self, episode: Played, what: str, old: object, new: object) -> None:
        self._problem(
            "determinism",
            f"{episode}: not determined by (task, seed, actions), or leaking between episodes: {what} was {_quote(old)}, "
            f"then {_quote(new)} when played again",
        )

    def _problem(self, kind: str, text: str) -> None:
        # The same fault in every episode is one problem to its author.
        if kind not in self._kinds:
            self._kinds.add(kind)
            self.problems.append(text)


def _comparable(result: StepResult) -> tuple[object, ...]:
    *others, info = result
    return *others, info.get("success")


def _quote(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _QUOTE_CHARS else f"{text[:_QUOTE_CHARS]}…"
