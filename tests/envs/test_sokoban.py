"""Sokoban: the rules, shortest solutions, rooms that can be solved and stay in their split, the text to the letter."""

from collections import deque
from typing import Any

import pytest

from complementary_rl.envs.checker import check_env
from complementary_rl.envs.registry import make_suite
from complementary_rl.envs.sokoban.board import Room, symmetric
from complementary_rl.envs.sokoban.generator import Difficulty, make_room, split_of
from complementary_rl.envs.sokoban.solver import solve
from complementary_rl.envs.sokoban.suite import Sokoban, SokobanEnv
from complementary_rl.errors import UserError

ONE_PUSH = ["######", "#____#", "#@$.##", "#____#", "#____#", "######"]
CORNERED = ["#####", "#$_@#", "#___#", "#__.#", "#####"]
TWO_IN_A_ROW = ["######", "#@$$_#", "#.___#", "#.___#", "#____#", "######"]


def play(suite: Sokoban, room: Room) -> tuple[SokobanEnv, str]:
    """An episode in a room of our own."""
    suite.room = lambda task: (room, [])  # type: ignore[assignment]
    env = suite.make_env()
    return env, env.reset(suite.tasks("train")[0], 0)[0]


def fewest_actions(room: Room) -> int:
    """By breadth-first search, without heuristics."""
    queue, seen = deque([(room.player, room.boxes, 0)]), {(room.player, room.boxes)}
    while queue:
        player, boxes, actions = queue.popleft()
        if boxes == room.targets:
            return actions
        for step in room.directions().values():
            after = room.move(player, boxes, step)
            if after is not None and after not in seen:
                seen.add(after)
                queue.append((*after, actions + 1))
    raise AssertionError("cannot be solved")


@pytest.mark.parametrize("options", [{}, {"scope": "level", "levels": 5}, {"boxes": 1, "size": 5, "dense_reward": True}])
def test_it_keeps_the_protocol(options: dict[str, Any]) -> None:
    report = check_env(make_suite("sokoban", **options), episodes=6)
    assert report.ok, str(report)
    assert report.notes == []


def test_an_episode_to_the_letter() -> None:
    env, opening = play(Sokoban(levels=1, heldout_levels=0), Room.parse(ONE_PUSH))
    assert opening.splitlines() == [*ONE_PUSH, "0 of 1 boxes on targets, 30 actions left"]
    assert env.step("left")[0].splitlines()[0] == "Blocked; nothing moved."
    assert env.step("jump")[0].splitlines()[:2] == ["That is no action here; nothing moved.", "######"]
    observation, *rest, info = env.step("  **Right.** ")
    assert observation == "######\n#____#\n#_@*##\n#____#\n#____#\n######\n1 of 1 boxes on targets, 27 actions left"
    assert rest == [1.0, True, False]
    assert info["success"] is True


def test_two_boxes_in_a_row_and_walls_do_not_move() -> None:
    room = Room.parse(TWO_IN_A_ROW)
    assert room.move(room.player, room.boxes, 1) is None
    assert room.move(room.player, room.boxes, -1) is None
    assert room.move(room.player, room.boxes, 6) == (13, room.boxes)
    env, _ = play(Sokoban(levels=1, heldout_levels=0), room)
    assert env.step("down")[0].splitlines()[2] == "#+___#"


def test_dense_rewards_are_those_of_gym_sokoban() -> None:
    rows = ["######", "#____#", "#@$.$#", "#___.#", "#____#", "######"]
    env, _ = play(Sokoban(levels=1, heldout_levels=0, dense_reward=True), Room.parse(rows))
    rewards = [env.step(action)[1] for action in ("right", "up", "right", "right", "down")]
    assert rewards == pytest.approx([0.9, -0.1, -0.1, -0.1, 10.9])
    env, _ = play(Sokoban(levels=1, heldout_levels=0, dense_reward=True), Room.parse(["#####", "#___#", "#@*_#", "#$._#", "#####"]))
    assert env.step("right")[1] == pytest.approx(-1.1)


def test_the_turn_limit_truncates() -> None:
    env, _ = play(Sokoban(levels=1, heldout_levels=0, max_turns=3, min_moves=1, max_moves=3), Room.parse(ONE_PUSH))
    ends = [(*env.step("down")[2:4],) for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]


def test_solving_with_the_last_action_is_no_truncation() -> None:
    env, _ = play(Sokoban(levels=1, heldout_levels=0, max_turns=1, min_moves=1, max_moves=1), Room.parse(ONE_PUSH))
    assert env.step("right")[1:4] == (1.0, True, False)


def test_solutions_are_the_shortest() -> None:
    for seed in range(12):
        room, solution = make_room(Difficulty(6, 2, 2, 25), "train", seed)
        assert len(solution) == fewest_actions(room)
        assert solve(room, len(solution)) == solution
        assert solve(room, len(solution) - 1) is None


def test_what_cannot_be_solved_has_no_solution() -> None:
    assert solve(Room.parse(CORNERED), 50) is None


def test_experts_solve_every_room_within_the_asked_range() -> None:
    suite = Sokoban(levels=30, heldout_levels=10, min_moves=5, max_moves=12)
    env = suite.make_env()
    lengths = set()
    for split in ("train", "heldout"):
        for task in suite.tasks(split):  # type: ignore[arg-type]
            observation, _ = env.reset(task, 0)
            assert observation.endswith("0 of 2 boxes on targets, 30 actions left")
            expert, actions, over = suite.expert(task, 0), 0, False
            while not over:
                observation, reward, over, _, _ = env.step(expert(observation))
                actions += 1
            assert reward == 1.0
            assert 5 <= actions <= 12
            lengths.add(actions)
    assert len(lengths) > 4


def test_rooms_do_not_change_and_differ_from_each_other() -> None:
    def openings(suite: Sokoban) -> list[str]:
        env = suite.make_env()
        return [env.reset(task, 3)[0] for task in (*suite.tasks("train"), *suite.tasks("heldout"))]

    first = openings(Sokoban(levels=20, heldout_levels=10))
    assert first == openings(Sokoban(levels=20, heldout_levels=10))
    assert len(set(first)) == 30
    assert not set(first) & set(openings(Sokoban(levels=20, heldout_levels=10, seed=1)))


def test_heldout_rooms_are_no_rotation_or_mirror_image_of_training_rooms() -> None:
    pictures = {"\n".join(picture) for picture in symmetric(ONE_PUSH)}
    assert len(pictures) == 8
    assert len({split_of(Room.parse(picture.splitlines())) for picture in pictures}) == 1
    suite = Sokoban(levels=10, heldout_levels=10)
    for split in ("train", "heldout"):
        for task in suite.tasks(split):  # type: ignore[arg-type]
            assert split_of(suite.room(task)[0]) == split


def test_scopes() -> None:
    shared, named = Sokoban(), Sokoban(scope="level", levels=8, heldout_levels=4)
    assert {task.scope for task in shared.tasks("train")} == {"sokoban"}
    assert {task.description for task in shared.tasks("train")} == {task.description for task in shared.tasks("heldout")}
    tasks = [*named.tasks("train"), *named.tasks("heldout")]
    assert len({task.scope for task in tasks}) == len({task.description for task in tasks}) == 12
    more = Sokoban(scope="level", levels=20, heldout_levels=9)
    assert list(more.tasks("train"))[:8] == list(named.tasks("train"))
    assert list(more.tasks("heldout"))[:4] == list(named.tasks("heldout"))


@pytest.mark.parametrize(
    "options",
    [
        {"size": 4},
        {"boxes": 0},
        {"levels": 0},
        {"heldout_levels": -1},
        {"max_moves": 31},
        {"min_moves": 0},
        {"scope": "room"},
        {"scope": "level", "levels": 1600},
    ],
)
def test_options_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(options))):
        make_suite("sokoban", **options)


def test_a_difficulty_that_no_room_has() -> None:
    with pytest.raises(UserError, match="widen min_moves and max_moves"):
        make_room(Difficulty(5, 1, 60, 60), "train", 0)
