"""One episode by anyone: a person, an expert, chance. What `crl envs play` and the benchmarks share."""

import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import numpy as np

from complementary_rl.envs.protocol import Policy, Suite, TextEnv
from complementary_rl.errors import UserError
from complementary_rl.seeds import rng
from complementary_rl.types import Task

Player = Callable[[str, Sequence[str]], str | None]
"""Gives the next action for (observation, actions that make sense), or None to leave the episode."""

_PHRASE_LENGTHS = (1, 1, 1, 2, 3)
_WORD = re.compile(r"[^\W_][\w-]*")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an episode went. `stop`: "terminated" | "truncated" (environment), "turns" (the task's limit), "left" (the player)."""

    success: bool
    reward: float
    actions: int
    stop: str


def play_episode(
    suite: Suite, env: TextEnv, task: Task, seed: int, player: Player, watch: Callable[[str], None] = lambda observation: None
) -> Outcome:
    """Play the episode of `(task, seed)` to its end; `watch` is given every observation, before the player is."""
    observation, info = env.reset(task, seed)
    watch(observation)
    offered, total = info.get("actions", ()), 0.0
    limit = suite.max_turns_for(task)
    for actions in range(limit):
        action = player(observation, offered)
        if action is None:
            return Outcome(False, total, actions, "left")
        observation, reward, terminated, truncated, info = env.step(action.strip())
        watch(observation)
        offered, total = info.get("actions", offered), total + reward
        if terminated or truncated:
            return Outcome(bool(info["success"]), total, actions + 1, "terminated" if terminated else "truncated")
    return Outcome(False, total, limit, "turns")


def expert_player(suite: Suite, task: Task, seed: int) -> Player:
    """The suite's expert for one episode. Raises UserError when it has none."""
    policy = suite.expert(task, seed)
    if policy is None:
        raise UserError(f"{suite.name} knows no expert for task {task.id!r}; a suite defines one as Suite.expert")
    known = policy
    return lambda observation, offered: known(observation)


def scripted(script: Callable[[str], Generator[str, str, None]]) -> Policy:
    """The policy of a script: a generator that is given the opening, yields actions, is sent what each led to, and gives up by ending."""
    acting: list[Generator[str, str, None]] = []

    def act(observation: str) -> str | None:
        try:
            if acting:
                return acting[0].send(observation)
            acting.append(script(observation))
            return next(acting[0])
        except StopIteration:
            return None

    return act


def random_player(suite: Suite, task: Task, seed: int) -> Player:
    """Chance: one of ``info["actions"]``, or where an environment does not give them, words of the rules and the observation."""
    random, rules = rng("random-player", seed), suite.instructions_for(task)

    def act(observation: str, offered: Sequence[str]) -> str:
        return offered[int(random.integers(len(offered)))] if len(offered) else babble(random, rules, observation)

    return act


def babble(random: np.random.Generator, instructions: str, observation: str) -> str:
    """A few words in a row out of the rules and the observation; empty when there are none."""
    words = [*_WORD.findall(instructions), *_WORD.findall(observation)]
    if not words:
        return ""
    start = random.integers(len(words))
    return " ".join(words[start : start + random.choice(_PHRASE_LENGTHS)])
