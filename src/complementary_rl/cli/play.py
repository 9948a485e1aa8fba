"""`crl envs play`: a task by hand in the terminal, or somebody else's episode to watch."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from complementary_rl.cli.envs import suite_options
from complementary_rl.cli.train import run_config
from complementary_rl.envs.playing import Outcome, Player, expert_player, play_episode, random_player
from complementary_rl.envs.protocol import Suite
from complementary_rl.envs.registry import make_suite
from complementary_rl.errors import UserError
from complementary_rl.readable import printable
from complementary_rl.types import Split, Task

_POLICIES = ("hand", "random", "expert")


def play(name: str | None, arguments: list[str], *, task: str | None, split: str, seed: int, policy: str, episodes: int) -> None:
    """Play `episodes` episodes; a single one, and those played by hand, are shown in full."""
    if name is None:
        raise UserError("name a suite (see `crl envs ls`), or give --run to watch a trained actor")
    if policy not in _POLICIES:
        raise UserError(f"--policy must be one of {', '.join(_POLICIES)}, not {policy!r}")
    suite = make_suite(name, **suite_options(arguments))
    tasks = _tasks(suite, split, task)
    terminal = Terminal()
    shown = policy == "hand" or episodes == 1
    env = suite.make_env()
    wins = played = 0
    rules = ""
    try:
        for episode in range(episodes):
            chosen, episode_seed = tasks[episode % len(tasks)], seed + episode
            terminal.title(f"{chosen.id}, seed {episode_seed}: {chosen.description}")
            if shown and suite.instructions_for(chosen) != rules:
                terminal.say(rules := suite.instructions_for(chosen))
            player = _player(policy, suite, chosen, episode_seed, terminal)
            watch = terminal.say if shown else _ignore
            outcome = play_episode(suite, env, chosen, episode_seed, terminal.echoing(player) if shown else player, watch)
            terminal.title(_sentence(outcome))
            if outcome.stop == "left":
                break
            wins, played = wins + outcome.success, played + 1
    except KeyboardInterrupt:
        terminal.title("left")
    finally:
        env.close()
    if episodes > 1:
        terminal.title(f"{wins} of {played} episodes solved")


def watch_run(run: Path, name: str | None, task: str | None, split: str, episodes: int, arguments: list[str]) -> None:
    """Show episodes of a run's newest checkpoint on the run's own suite, with and without experience; the run stays as it was."""
    if name is not None or arguments:
        raise UserError("--run plays the suite that the run was trained on; leave the name and its options out")
    from complementary_rl.training.run import evaluate_run

    config = run_config(run)
    wanted = {"episodes": episodes, "split": _split(split), "tasks": [task] if task else [], "shuffled_control": False}
    result = asyncio.run(evaluate_run(config, config.eval.model_validate({**config.eval.model_dump(), **wanted})))
    terminal = Terminal()
    for arm, trajectories in result.episodes.items():
        for trajectory in trajectories:
            terminal.title(f"{trajectory.task.id}, {arm}: {trajectory.task.description}")
            for turn in trajectory.turns:
                terminal.say(turn.observation)
                terminal.action(turn.action)
            terminal.say(trajectory.final_observation)
            terminal.title(_sentence(Outcome(trajectory.success, trajectory.reward, trajectory.n_actions, trajectory.stop_reason)))


class Terminal:
    """Where episodes are shown and actions read. All text is shown as harmless characters; without a terminal it is plain."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)

    def title(self, text: str) -> None:
        self._console.print(Text(printable(text), style="bold"))

    def say(self, text: str) -> None:
        self._console.print(Text(printable(text)))

    def action(self, text: str) -> None:
        self._console.print(Text(f"> {printable(text)}", style="cyan"))

    def ask(self) -> str | None:
        """A line from the standard input, None at its end."""
        if sys.stdin.isatty():
            self._console.print("> ", style="cyan", end="")
        line = sys.stdin.readline()
        return line.rstrip("\n") if line else None

    def echoing(self, player: Player) -> Player:
        """The player, its actions shown; what a person types at a terminal stands there already."""

        def act(observation: str, offered: Sequence[str]) -> str | None:
            action = player(observation, offered)
            if action is not None and not (isinstance(player, _Hand) and sys.stdin.isatty()):
                self.action(action)
            return action

        return act


class _Hand:
    """A person, or a script that stands in for one."""

    def __init__(self, rules: str, terminal: Terminal) -> None:
        self._rules = rules
        self._terminal = terminal

    def __call__(self, observation: str, offered: Sequence[str]) -> str | None:
        while (line := self._terminal.ask()) is not None and line.strip() == "?":
            self._terminal.say(self._rules)
            if offered:
                self._terminal.say("Some actions: " + "; ".join(offered))
        return line


def _player(policy: str, suite: Suite, task: Task, seed: int, terminal: Terminal) -> Player:
    if policy == "hand":
        return _Hand(suite.instructions_for(task), terminal)
    return expert_player(suite, task, seed) if policy == "expert" else random_player(suite, task, seed)


def _tasks(suite: Suite, split: str, wanted: str | None) -> Sequence[Task]:
    tasks = suite.tasks(_split(split))
    if not tasks:
        raise UserError(f"{suite.name} has no {split} tasks")
    chosen = [task for task in tasks if wanted in (None, task.id)]
    if not chosen:
        raise UserError(f"there is no {split} task {wanted!r}; there are {len(tasks)}, such as {tasks[0].id!r}")
    return chosen


def _split(text: str) -> Split:
    if text not in ("train", "heldout"):
        raise UserError(f"--split must be train or heldout, not {text!r}")
    return "train" if text == "train" else "heldout"


def _sentence(outcome: Outcome) -> str:
    how = {"turns": "the turn limit", "left": "left"}.get(outcome.stop, outcome.stop)
    solved = "solved" if outcome.success else "not solved"
    return f"{solved} after {outcome.actions} action{'' if outcome.actions == 1 else 's'} ({how}), reward {outcome.reward:g}"


def _ignore(observation: str) -> None:
    del observation
