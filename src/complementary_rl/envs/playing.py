"""One episode by anyone: a person, an expert, chance. What `crl envs play` and the benchmarks share."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from complementary_rl.envs.protocol import Suite, TextEnv
from complementary_rl.errors import UserError
from complementary_rl.seeds import rng
from complementary_rl.types import Task

Player = Callable[[str, Sequence[str]], str | None]
"""Gives the next action for (observation, actions that make sense), or None to leave the episode."""

_PHRASE_LENGTHS = (1, 1, 1, 2, 3)
_WORD = re.compile(r"[^\W_][\w-]*")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an episode went. `stop`: "terminated" | "truncated" (environment), "turns" (the suite's limit), "left" (the player)."""

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
    for actions in range(suite.max_turns):
        action = player(observation, offered)
        if action is None:
            return Outcome(False, total, actions, "left")
        observation, reward, terminated, truncated, info = env.step(action.strip())
        watch(observation)
        offered, total = info.get("actions", offered), total + reward
        if terminated or truncated:
            return Outcome(bool(info["success"]), total, actions + 1, "terminated" if terminated else "truncated")
    return Outcome(False, total, suite.max_turns, "turns")


def expert_player(suite: Suite, task: Task, seed: int) -> Player:
    """The suite's expert for one episode. Raises UserError when it has none."""
    policy = suite.expert(task, seed)
    if policy is None:
        raise UserError(f"{suite.name} knows no expert for task {task.id!r}; a suite defines one as Suite.expert")
    known = policy
    return lambda observation, offered: known(observation)


def random_player(suite: Suite, seed: int) -> Player:
    """Chance: one of ``info["actions"]``, or where an environment does not give them, words of the rules and the observation."""
    random = rng("random-player", seed)

    def act(observation: str, offered: Sequence[str]) -> str:
        return offered[int(random.integers(len(offered)))] if len(offered) else babble(random, suite.instructions, observation)

    return act


def babble(random: np.random.Generator, instructions: str, observation: str) -> str:
    """A few words in a row out of the rules and the observation; empty when there are none."""
    words = [*_WORD.findall(instructions), *_WORD.findall(observation)]
    if not words:
        return ""
    start = random.integers(len(words))
    return " ".join(words[start : start + random.choice(_PHRASE_LENGTHS)])
