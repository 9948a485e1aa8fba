"""TextArena's games for one player as a suite: ``suite = "textarena"``, ``options = { id = "GuessTheNumber-v0" }``.

Tried with textarena 0.7.4 (MIT). Of its word games (Wordle, Hangman, WordLadder, WordSearch) those that want NLTK's data need a
network once; 56 of the ids for one player need nothing.
"""

from typing import Any

from complementary_rl.envs.adapters.global_random import OwnRandom
from complementary_rl.envs.adapters.ids import check_id
from complementary_rl.envs.adapters.seeded import SeededSuite
from complementary_rl.errors import UserError

try:
    import textarena
except ImportError as error:
    raise UserError(f"the suite textarena needs TextArena ({error}); run: pip install 'complementary-rl[textarena]'") from error

# The same game without the wrappers that tell its whole history again after each action.
_RAW = "-raw"
# All but the player's own action; three games file that under no kind at all.
_TOLD = frozenset(textarena.ObservationType) - {textarena.ObservationType.PLAYER_ACTION}


class TextArena(SeededSuite):
    """The game `id` of TextArena, played alone; tasks are seeds of it, see `SeededSuite`.

    The opening is the game's own prompt, then each observation is what the game has said since the last action. Actions are put into
    brackets where they have none, as TextArena's wrapper does. The reward comes with the end and is the game's own, partial credit and
    penalties included; success is a reward of 1, which is TextArena's win. `description` is, unless given, that the game is to be
    played. Raises UserError for an id that is unknown (with the nearest), for several players, or cannot be played here.
    """

    needs = "textarena (MIT)"

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
        registry = textarena.envs.registration.ENV_REGISTRY
        check_id("textarena", id, [known for known in registry if known + _RAW in registry])
        super().__init__(
            f"textarena/{id}",
            description or f"Play the game {id.partition('-v')[0]}.",
            lambda: _Game(id),
            train_tasks=train_tasks,
            heldout_tasks=heldout_tasks,
            max_turns=max_turns,
            fresh=fresh,
            seed=seed,
            solved_at=1.0,
        )
        _try(id)


def _try(id: str) -> None:
    """Begin the game once, so that what cannot be played is told before anything runs."""
    try:
        _Game(id).reset(seed=0)
    except Exception as error:
        reason = next((line.strip(" *") for line in str(error).splitlines() if line.strip(" *")), type(error).__name__)
        raise UserError(
            f"textarena's {id} cannot be played here: {reason.rstrip('.')}; choose an id for one player that wants no data from elsewhere"
        ) from error


class _Game:
    """TextArena's calls as Gymnasium's. Its games draw from the global generator."""

    def __init__(self, id: str) -> None:
        self._random = OwnRandom()
        with self._random:
            self._game: Any = textarena.wrappers.ActionFormattingWrapper(textarena.make(id + _RAW))

    def reset(self, *, seed: int) -> tuple[str, dict[str, Any]]:
        with self._random:
            self._game.reset(num_players=1, seed=seed)
        return self._news(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        with self._random:
            over, _ = self._game.step(action)
        state = self._game.state
        reward = float(state.rewards[0]) if over else 0.0
        reason = [str(state.game_info[0].get("reason", ""))] if over else []
        return "\n".join([self._news(), *reason]).strip(), reward, over, False, {}

    def _news(self) -> str:
        _, messages = self._game.get_observation()
        return "\n".join(text for _, text, kind in messages if kind in _TOLD).strip()

    def close(self) -> None:
        """TextArena's games hold nothing; their close only tells the rewards again, and fails before the first reset."""
