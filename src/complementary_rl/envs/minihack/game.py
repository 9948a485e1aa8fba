"""One NetHack game at a time, on a compiled MiniHack level: the thin layer between our text views and NLE.

MiniHack's own class asks NLE for all fourteen observations and recompiles the game's data for every level. Here a level is
compiled once to a few hundred bytes and put beside shared game data, and only the observations a view reads are filled:
a reset takes 0.8 ms and a step 0.01 ms.
"""

import atexit
import functools
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from complementary_rl.errors import UserError

try:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="pkg_resources is deprecated", category=UserWarning)
        from minihack.base import HACKDIR, LIB_DIR, MH_NETHACKOPTIONS
    from nle.env.tasks import NetHackStaircase
except ImportError as error:
    raise UserError(
        f"MiniHack suites need packages that are not installed ({error}); run: pip install 'complementary-rl[minihack]'"
    ) from error

# MiniHack's navigation tasks play a chaotic human rogue without a pet.
_CHARACTER = "rog-hum-cha-mal"
_X, _Y, _HP, _MAX_HP, _TURN = 0, 1, 10, 11, 20
_IN_QUESTION, _IN_TEXT, _WAITS_FOR_SPACE = 1, 2, 3
_SPACE, _ESCAPE = 32, 27
_DEATH, _TASK_SUCCESSFUL = 1, 2
_MAX_PAGES = 50

NEEDS = "minihack (NetHack GPL)"
KEY_CODES = tuple(range(256))
ENDLESS = 1_000_000
"""A turn limit for NLE that is never reached: views count turns. At its own limit NLE reports terminated *and* truncated."""


class _Staircase(NetHackStaircase):  # type: ignore[misc]
    """NLE's task "reach the staircase down", which leaves the last screen as it is when the task ends."""

    def _quit_game(self, observation: Any, done: bool) -> None:
        # NLE would type the quit command here, which blanks the observations; the next reset ends the game anyway.
        del observation, done


class Game:
    """A NetHack instance that is played by pressing keys; `env` is an NLE environment whose actions are the key codes 0 … 255.

    `begin` a game, then `press` keys until `over`; `heard` collects the game's messages, also those behind "--More--", until it is
    cleared. The hero's death blanks NetHack's screen, success leaves it as it was.
    """

    def __init__(self, env: Any) -> None:
        self._env = env
        self._names = env._observation_keys
        self.over = True
        self.won = self.died = False
        self.heard: list[str] = []

    def begin(self, *, core: int, level_seed: int | None = None) -> None:
        """Begin a game. `core` seeds the dice; `level_seed` the making of the level (default: `core` too)."""
        # `reset(seed=)` does not reach NetHack, and without `reseed=False` it reseeds itself from the system's entropy.
        self._env.seed(core=core, disp=core, reseed=False, lgen=level_seed)
        self._env.reset()
        self.over = self.won = self.died = False
        self.heard = []

    def press(self, key: int) -> None:
        """Press one key and page through what the game says. Sets `over` when the game is, and then `won` or `died` where it ended so."""
        assert not self.over, "the game is over: start a new one"
        self._step(key)
        for _ in range(_MAX_PAGES):
            if self.over or not self._current("internal")[_WAITS_FOR_SPACE]:
                return
            self._step(_SPACE)

    def asks(self) -> bool:
        """Whether the game waits for the answer to a question."""
        return not self.over and bool(self._current("internal")[[_IN_QUESTION, _IN_TEXT]].any())

    def dismiss(self) -> None:
        """Escape from open questions, so that the next key is a command again."""
        for _ in range(_MAX_PAGES):
            if not self.asks():
                return
            self.press(_ESCAPE)

    @property
    def position(self) -> tuple[int, int]:
        """Column and row of the hero on NetHack's 79×21 map."""
        stats = self._current("blstats")
        return int(stats[_X]), int(stats[_Y])

    @property
    def health(self) -> tuple[int, int]:
        """Hit points now and at most."""
        stats = self._current("blstats")
        return int(stats[_HP]), int(stats[_MAX_HP])

    @property
    def turn(self) -> int:
        """NetHack's clock; not every key press takes a turn."""
        return int(self._current("blstats")[_TURN])

    def describe(self, x: int, y: int) -> str:
        """NetHack's words for what is displayed at a place of the map; needs ``screen_descriptions``."""
        return _text(self._current("screen_descriptions")[y, x])

    def descriptions(self, rows: slice, columns: slice) -> list[list[str]]:
        """`describe` for a rectangle of the map, row by row; many times quicker than cell by cell."""
        block = self._current("screen_descriptions")[rows, columns]
        height, width, length = block.shape
        cells = block.tobytes()
        return [
            [_decoded(cells[(y * width + x) * length : (y * width + x + 1) * length]) for x in range(width)] for y in range(height)
        ]

    def inventory(self) -> list[tuple[str, str]]:
        """(letter, name) of what the hero carries; needs ``inv_letters`` and ``inv_strs``."""
        letters, names = self._current("inv_letters"), self._current("inv_strs")
        return [(chr(letter), _text(name)) for letter, name in zip(letters, names, strict=True) if letter]

    def glyph(self, x: int, y: int) -> int:
        """The glyph displayed at a place of the map."""
        return int(self._current("glyphs")[y, x])

    def array(self, name: str) -> NDArray[Any]:
        """A copy of an observation: NLE overwrites its arrays with every key."""
        return self._current(name).copy()

    def close(self) -> None:
        """Free the game and its temporary directory."""
        self._env.close()

    def _step(self, key: int) -> None:
        _, reward, terminated, _, info = self._send(key)
        self.over = bool(terminated)
        # Some of MiniHack's tasks also end by what must not happen; only the reward tells.
        self.won = int(info["end_status"]) == _TASK_SUCCESSFUL and reward > 0
        self.died = int(info["end_status"]) == _DEATH
        if message := _text(self._current("message")):
            self.heard.append(message)

    def _send(self, key: int) -> Any:
        return self._env.step(key)

    def _current(self, name: str) -> NDArray[Any]:
        observation: NDArray[Any] = np.asarray(self._env.last_observation[self._names.index(name)])
        return observation


class LevelGame(Game):
    """A game on a level that we compiled; the task is to reach the staircase down.

    `observe` names NLE observations that `array` can return beside ``glyphs``, ``blstats`` and ``message``.
    """

    def __init__(self, observe: Sequence[str] = (), *, autopickup: bool = True) -> None:
        env = _Staircase(
            observation_keys=("glyphs", "blstats", "message", *observe),
            options=(*MH_NETHACKOPTIONS, "pettype:none", *(() if autopickup else ("!autopickup",))),
            character=_CHARACTER,
            # Keys are pressed by their code, so that prompts can be answered like a player does.
            actions=KEY_CODES,
            allow_all_yn_questions=True,
            # NLE would page through "--More--" by itself and lose what stood before it.
            allow_all_modes=True,
            spawn_monsters=False,
            penalty_step=0.0,
            max_episode_steps=ENDLESS,
            # Luck would otherwise depend on the day's moon and date.
            fix_moon_phase=True,
        )
        super().__init__(env)
        self._directory = Path(env.nethack._vardir)
        data = self._directory / "nhdat"
        data.unlink()
        data.symlink_to(_shared_data())

    def start(self, level: bytes, *, core: int, level_seed: int | None = None) -> None:
        """`begin` a game on a compiled level."""
        (self._directory / "mylevel.lev").write_bytes(level)
        self.begin(core=core, level_seed=level_seed)


def _text(codes: NDArray[Any]) -> str:
    return _decoded(codes.tobytes())


@functools.lru_cache(maxsize=4096)
def _decoded(text: bytes) -> str:
    return text.split(b"\0", 1)[0].decode("latin-1").strip()


def map_origin(width: int, height: int) -> tuple[int, int]:
    """Where NetHack puts the top left cell of a ``GEOMETRY:center,center`` map: (column, row) as in `Game.position`."""
    # sp_lev.c rounds up to odd places and counts columns from 1; observations count them from 0.
    column, row = 2 + (76 - width) // 2, 2 + (18 - height) // 2
    return (column | 1) - 1, row | 1


@functools.cache
def compile_level(description: str) -> bytes:
    """Compile a des-file whose level is called ``mylevel`` (2 ms, cached). Raises RuntimeError with the compiler's words."""
    with tempfile.TemporaryDirectory(prefix="crl-level-") as directory:
        Path(directory, "level.des").write_text(description)
        _run(f"{HACKDIR}/lev_comp", "level.des", cwd=directory)
        return Path(directory, "mylevel.lev").read_bytes()


@functools.cache
def _shared_data() -> Path:
    """MiniHack's one-level dungeon without the level, packed once per process; NetHack then takes the level from its folder."""
    directory = tempfile.mkdtemp(prefix="crl-nethack-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    parts = sorted(path.name for path in Path(LIB_DIR).iterdir())
    for part in parts:
        shutil.copy(Path(LIB_DIR, part), directory)
    _run(f"{HACKDIR}/dlb", "cf", "nhdat", *parts, cwd=directory)
    return Path(directory, "nhdat")


def _run(*command: str, cwd: str) -> None:
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=30, check=False)
    if result.returncode:
        raise RuntimeError(f"{Path(command[0]).name} failed: {result.stdout}{result.stderr}".strip())
