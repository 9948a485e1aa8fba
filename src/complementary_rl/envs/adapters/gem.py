"""GEM's environments as a suite: ``suite = "gem"``, ``options = { id = "game:GuessTheNumber-v0-easy" }``.

Tried with gem-llm 0.1.0 (Apache-2.0). They follow Gymnasium's calls with text, so that little is left to do here.
"""

from typing import Any

from complementary_rl.envs.adapters.global_random import OwnRandom
from complementary_rl.envs.adapters.ids import check_id
from complementary_rl.envs.adapters.seeded import SeededSuite
from complementary_rl.errors import UserError

try:
    import gem
except ImportError as error:
    raise UserError(f"the suite gem needs GEM ({error}); run: pip install 'complementary-rl[gem]'") from error

# Milestones are fractions, whose sum need not be 1 to the last bit.
_SOLVED = 1.0 - 1e-6


class Gem(SeededSuite):
    """The environment `id` of GEM; tasks are seeds of it, see `SeededSuite`.

    Rewards are GEM's own; success is an end at which they add up to 1, as they do for a game won or a question answered.
    `description` is, unless given, that this environment is to be solved. Raises UserError for an unknown id (with the nearest) and
    where the environment cannot be made here, such as for want of a data set.
    """

    needs = "gem (Apache-2.0)"

    def __init__(
        self,
        id: str,
        *,
        description: str = "",
        train_tasks: int = 256,
        heldout_tasks: int = 64,
        max_turns: int = 30,
        fresh: bool = False,
        seed: int = 0,
    ) -> None:
        check_id("gem", id, gem.envs.registration.ENV_REGISTRY)
        super().__init__(
            f"gem/{id}",
            description or f"Solve {id.partition(':')[2].partition('-v')[0]}.",
            lambda: _Env(id),
            train_tasks=train_tasks,
            heldout_tasks=heldout_tasks,
            max_turns=max_turns,
            fresh=fresh,
            seed=seed,
            solved_at=_SOLVED,
        )
        try:
            _Env(id)
        except Exception as error:
            raise UserError(f"gem cannot make {id} here: {type(error).__name__}: {error}; choose another id") from error


class _Env:
    """GEM's environments draw from the global generators, have no close, and tell what there is to see now (a board) as a suffix."""

    def __init__(self, id: str) -> None:
        self._random = OwnRandom()
        with self._random:
            self._env = gem.make(id)

    def reset(self, *, seed: int) -> tuple[str, dict[str, Any]]:
        with self._random:
            observation, info = self._env.reset(seed=seed)
        return _told(observation, info), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        with self._random:
            observation, reward, terminated, truncated, info = self._env.step(action)
        return observation if terminated else _told(observation, info), reward, terminated, truncated, {}

    def close(self) -> None: ...


def _told(observation: str, info: dict[str, Any]) -> str:
    return "\n".join(part.strip() for part in (observation, info.get("suffix", "")) if part)
