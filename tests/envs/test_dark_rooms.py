"""The dark rooms: text format to the letter, hidden and fixed exits, starts out of sight, judged entries, real NetHack."""

import re
import time
from collections import Counter

import pytest

pytest.importorskip("nle", reason="needs the extra 'minihack'")
pytest.importorskip("minihack", reason="needs the extra 'minihack'")

from complementary_rl.envs.checker import check_env
from complementary_rl.envs.minihack.compass import STEPS, towards
from complementary_rl.envs.minihack.dark_rooms import DarkRoomEnv, DarkRooms
from complementary_rl.envs.names import ADJECTIVES, NOUNS
from complementary_rl.envs.playing import expert_player, play_episode
from complementary_rl.envs.registry import make_suite
from complementary_rl.errors import UserError
from complementary_rl.types import Task

OBSERVATION = re.compile(r"(unknown action; )?at (\d+) (\d+)(?:, exit ([a-z-]+)|(, out))?")


def place(observation: str) -> tuple[int, int]:
    match = OBSERVATION.fullmatch(observation)
    assert match, observation
    return int(match[2]), int(match[3])


def sees_exit(observation: str) -> bool:
    return ", exit " in observation


def walk(env: DarkRoomEnv, here: tuple[int, int], goal: tuple[int, int]) -> list[tuple[str, float, bool, bool, bool]]:
    """King moves to the goal; what was observed."""
    seen = []
    while here != goal:
        observation, reward, terminated, truncated, info = env.step(towards(goal[0] - here[0], goal[1] - here[1]))
        seen.append((observation, reward, terminated, truncated, info["success"]))
        here = place(observation)
        if terminated or truncated:
            break
    return seen


@pytest.fixture(scope="module")
def suite() -> DarkRooms:
    return DarkRooms()


@pytest.fixture(scope="module")
def env(suite: DarkRooms) -> DarkRoomEnv:
    return suite.make_env()


def test_it_keeps_the_protocol() -> None:
    report = check_env(make_suite("minihack/dark-rooms", rooms=4, heldout_rooms=2), episodes=6)
    assert report.ok, str(report)


def test_rooms_have_distinct_names_and_the_description_says_which(suite: DarkRooms) -> None:
    assert len(set(ADJECTIVES)) * len(set(NOUNS)) >= 32 * 32
    tasks = [*suite.tasks("train"), *suite.tasks("heldout")]
    assert len({task.description for task in tasks}) == len({task.id for task in tasks}) == 32
    for task in tasks:
        match = re.fullmatch(r"Find the exit of the (\w+) (\w+)\.", task.description)
        assert match
        assert match[1] in ADJECTIVES
        assert match[2] in NOUNS


def test_more_rooms_of_one_split_leave_the_rest_as_it_was(suite: DarkRooms) -> None:
    more = DarkRooms(rooms=40, heldout_rooms=20)
    assert list(more.tasks("train"))[:16] == list(suite.tasks("train"))
    assert set(suite.tasks("heldout")) <= set(more.tasks("heldout"))
    assert all(more.exit(task) == suite.exit(task) for task in suite.tasks("train"))


def test_the_seed_chooses_names_and_exits(suite: DarkRooms) -> None:
    other = DarkRooms(seed=1)
    assert {task.id for task in other.tasks("train")} != {task.id for task in suite.tasks("train")}
    wide, other_wide = DarkRooms(rooms=1600, heldout_rooms=0), DarkRooms(rooms=1600, heldout_rooms=0, seed=1)
    exits = Counter(wide.exit(task) for task in wide.tasks("train"))
    assert len(exits) == 225
    by_id = {task.id: other_wide.exit(task) for task in other_wide.tasks("train")}
    assert sum(by_id[task.id] == wide.exit(task) for task in wide.tasks("train")) < 40


def test_an_episode_to_the_letter(suite: DarkRooms, env: DarkRoomEnv) -> None:
    task = next(task for task in suite.tasks("train") if suite.exit(task)[0] < 13)
    x, y = suite.exit(task)
    observation = env.reset(task, 5)[0]
    assert re.fullmatch(r"at \d+ \d+", observation)
    # Come from the east along the row of the exit, stop beside it, go away again, then return: it is remembered.
    walk(env, place(observation), (x + 2, y))
    assert env.step("west")[0] == f"at {x + 1} {y}, exit west"
    assert env.step("east")[0] == f"at {x + 2} {y}, exit west"
    assert env.step("jump")[0] == f"unknown action; at {x + 2} {y}, exit west"
    assert env.step("  WEST \n")[0] == f"at {x + 1} {y}, exit west"
    assert env.step("west") == (f"at {x} {y}, out", 1.0, True, False, {"success": True})


def test_the_exit_is_shown_from_the_cells_around_it_and_not_before(suite: DarkRooms, env: DarkRoomEnv) -> None:
    for seed, task in enumerate(suite.tasks("train")):
        exit_x, exit_y = suite.exit(task)
        here = place(env.reset(task, seed)[0])
        for observation, _, _, _, success in walk(env, here, (exit_x, exit_y)):
            x, y = place(observation)
            near = max(abs(x - exit_x), abs(y - exit_y))
            assert sees_exit(observation) == (near == 1)
            assert success == (near == 0)
            if near == 1:
                assert observation.split()[-1] == towards(exit_x - x, exit_y - y)


def test_all_eight_moves_and_the_walls(suite: DarkRooms, env: DarkRoomEnv) -> None:
    task = next(task for task in suite.tasks("train") if suite.exit(task)[0] > 3)
    for word, (dx, dy) in STEPS.items():
        x, y = place(env.reset(task, 0)[0])
        if 1 <= x + dx <= 15 and 1 <= y + dy <= 15:
            assert place(env.step(word)[0]) == (x + dx, y + dy)
    seed = next(seed for seed in range(100) if place(env.reset(task, seed)[0])[1] != suite.exit(task)[1])
    row = place(env.reset(task, seed)[0])[1]
    assert [place(env.step("west")[0]) for _ in range(16)][-2:] == [(1, row), (1, row)]


def test_starts_are_spread_out_of_sight_and_drawn_from_the_seed(suite: DarkRooms, env: DarkRoomEnv) -> None:
    task = suite.tasks("train")[0]
    exit_x, exit_y = suite.exit(task)
    starts = []
    for seed in range(200):
        observation = env.reset(task, seed)[0]
        assert not sees_exit(observation)
        starts.append(place(observation))
    assert all(max(abs(x - exit_x), abs(y - exit_y)) > 1 for x, y in starts)
    assert len(set(starts)) > 100
    assert {1, 15} <= {x for x, _ in starts}
    assert {1, 15} <= {y for _, y in starts}
    other = suite.make_env()
    assert [place(other.reset(task, seed)[0]) for seed in range(10)] == starts[:10]
    other.close()


def test_the_turn_limit_truncates(suite: DarkRooms) -> None:
    short = DarkRooms(max_turns=3)
    env = short.make_env()
    env.reset(short.tasks("train")[0], 0)
    ends = [env.step("?")[2:] for _ in range(3)]
    assert ends == [(False, False, {"success": False})] * 2 + [(False, True, {"success": False})]
    env.close()


def test_the_expert_finds_every_exit_within_the_turns(suite: DarkRooms, env: DarkRoomEnv) -> None:
    for seed, task in enumerate(suite.tasks("heldout")):
        outcome = play_episode(suite, env, task, seed, expert_player(suite, task, seed))
        assert outcome.success, task


def test_redrawn_rooms_keep_their_names_and_have_their_exits_elsewhere(suite: DarkRooms, env: DarkRoomEnv) -> None:
    changing = DarkRooms(redraw_step=7)
    for task in suite.tasks("train"):
        assert changing.task_at(task, 6) == task
        later = changing.task_at(task, 7)
        assert changing.exit(task) == suite.exit(task) == suite.exit(suite.task_at(task, 7))
        assert changing.region(later) != suite.region(task)
        assert (later.id, later.description, later.scope) == (task.id, task.description, task.scope)
        assert changing.judge_entry(later, f"the exit is in the {changing.region(later)}")
        assert not changing.judge_entry(later, f"the exit is in the {suite.region(task)}")
    world = changing.make_env()
    player = expert_player(changing, later, 3)
    assert play_episode(changing, world, later, 3, player).success
    world.close()
    with pytest.raises(UserError, match="redraw_step"):
        DarkRooms(redraw_step=-1)


@pytest.mark.parametrize("size", [6, 9, 12, 15, 18])
def test_every_size_has_its_corners(size: int) -> None:
    suite = DarkRooms(rooms=1, size=size, max_turns=100)
    env = suite.make_env()
    task = suite.tasks("train")[0]
    for corner in ((1, 1), (size, 1), (1, size), (size, size)):
        here = place(env.reset(task, 1)[0])
        last = walk(env, here, corner)
        assert place(last[-1][0]) in (corner, suite.exit(task))
    env.close()


@pytest.mark.parametrize(
    ("exit_cell", "region"),
    [((1, 1), "north-west"), ((5, 6), "west"), ((6, 5), "north"), ((8, 8), "centre"), ((11, 10), "east"), ((10, 11), "south")],
)
def test_regions(suite: DarkRooms, monkeypatch: pytest.MonkeyPatch, exit_cell: tuple[int, int], region: str) -> None:
    task = suite.tasks("train")[0]
    monkeypatch.setitem(suite._exits, (task.id, task.seed), exit_cell)
    assert suite.region(task) == region


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("the exit is in the north-west", True),
        ("The exit is in the NORTH-WEST.", True),
        ("the exit is in the north", False),
        ("the exit is in the west", False),
        ("the exit is not in the north-west", False),
        ("the exit is not in the north", True),
        ("the exit is not in the north, not in the south-east", True),
        ("the exit is not in the north, not in the north-west", False),
        ("the exit is not in the north, it is in the north-west", True),
        ("the exit is in the north-west or in the south", False),
        ("go north", None),
        ("", None),
        ("the exit is in the cellar", None),
    ],
)
def test_judging_entries(suite: DarkRooms, monkeypatch: pytest.MonkeyPatch, text: str, verdict: bool | None) -> None:
    task = suite.tasks("train")[0]
    monkeypatch.setitem(suite._exits, (task.id, task.seed), (2, 3))
    assert suite.judge_entry(task, text) is verdict


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rooms": 0}, "rooms"),
        ({"rooms": 1600, "heldout_rooms": 1}, "1600"),
        ({"heldout_rooms": -1}, "heldout_rooms"),
        ({"size": 7}, "size is 7"),
        ({"max_turns": 0}, "max_turns"),
    ],
)
def test_options_out_of_range(options: dict[str, int], words: str) -> None:
    with pytest.raises(UserError, match=words):
        DarkRooms(**options)


def test_a_room_of_another_suite(env: DarkRoomEnv) -> None:
    with pytest.raises(UserError, match="no room"):
        env.reset(Task("minihack/dark-rooms/nowhere", "minihack/dark-rooms", "Find it.", 0), 0)


def test_it_is_fast(suite: DarkRooms, env: DarkRoomEnv) -> None:
    task = suite.tasks("train")[0]
    resets = []
    steps = []
    for seed in range(20):
        start = time.process_time()
        env.reset(task, seed)
        resets.append(time.process_time() - start)
        start = time.process_time()
        for word in ("north", "south", "east", "west", "east"):
            if env.step(word)[2]:
                break
        steps.append((time.process_time() - start) / 5)
    # Measured 1 ms and 0.02 ms; the medians leave room for a busy machine.
    assert sorted(resets)[10] < 0.005
    assert sorted(steps)[10] < 0.001
