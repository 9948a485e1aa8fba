"""The scripted hero of the MiniHack levels: it wins what can be won, and reads no more than an actor does."""

import pytest

pytest.importorskip("nle", reason="needs the extra 'minihack'")
pytest.importorskip("minihack", reason="needs the extra 'minihack'")

from complementary_rl.envs.minihack.explorer import explore
from complementary_rl.envs.playing import expert_player, play_episode
from complementary_rl.envs.registry import make_suite

CORNER = """\
HP 12/12, turn 1, 30 actions left
Map (north is up):
...
.@.
..>
Legend: @ you; . floor of a room; > staircase down
Seen: staircase down: 1 south 1 east"""


@pytest.mark.parametrize(
    ("level", "least"), [("room-15x15", 8), ("room-5x5-random", 8), ("keyroom-dark-s5", 8), ("room-15x15-dark", 3)]
)
def test_it_wins(level: str, least: int) -> None:
    suite = make_suite(f"minihack/{level}")
    env = suite.make_env()
    played = [play_episode(suite, env, task, 0, expert_player(suite, task, 0)) for task in suite.tasks("train")[:8]]
    env.close()
    assert sum(outcome.success for outcome in played) >= least


def test_it_goes_to_the_staircase_and_round_what_did_not_let_it_pass() -> None:
    hero = explore(CORNER, (3, 3))
    assert next(hero) == "south-east"
    assert hero.send(CORNER) in ("south", "east")


def test_a_boulder_is_in_the_way() -> None:
    blocked = CORNER.replace("..>", "``>").replace(".@.", ".@`").replace("> stair", "` boulder; > stair")
    hero = explore(blocked, (3, 3))
    assert next(hero) == "south-east"
    assert hero.send(blocked) == "search"


def test_levels_without_a_hero() -> None:
    for suite in (
        make_suite("minihack/river-narrow"),
        make_suite("minihack/room-5x5", view="language"),
        make_suite("minihack/room-5x5", crop=9),
    ):
        assert suite.expert(suite.tasks("train")[0], 0) is None
