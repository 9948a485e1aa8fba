"""FrozenLake: Gymnasium's own rules and ice, maps that can be crossed and stay in their split, the text to the letter, the best policy."""

from collections import Counter, deque
from typing import Any

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="needs the extra 'gymnasium'")

from gymnasium.envs.toy_text.frozen_lake import MAPS
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv as Lake

from complementary_rl.envs.checker import check_env
from complementary_rl.envs.frozen_lake.planner import best_actions
from complementary_rl.envs.frozen_lake.suite import ACTIONS, FrozenLake, FrozenLakeEnv
from complementary_rl.envs.registry import make_suite
from complementary_rl.errors import UserError
from complementary_rl.types import Task


def on(rows: list[str], **options: Any) -> tuple[FrozenLakeEnv, Task]:
    """An environment and a task whose map is `rows`."""
    suite = FrozenLake(levels=1, heldout_levels=0, **options)
    suite.map = lambda task: tuple(rows)  # type: ignore[method-assign]
    return suite.make_env(), suite.tasks("train")[0]


def play(suite: FrozenLake, task: Task, seed: int) -> tuple[bool, int]:
    env, policy = suite.make_env(), suite.expert(task, seed)
    observation, _ = env.reset(task, seed)
    for actions in range(1, suite.max_turns + 1):
        observation, _, terminated, truncated, info = env.step(policy(observation))
        if terminated or truncated:
            return info["success"], actions
    raise AssertionError("the turn limit did not end the episode")


def steps_to_goal(rows: tuple[str, ...]) -> int | None:
    queue, seen = deque([((0, 0), 0)]), {(0, 0)}
    while queue:
        (row, column), steps = queue.popleft()
        if rows[row][column] == "G":
            return steps
        for there in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)):
            if there not in seen and min(there) >= 0 and max(there) < len(rows) and rows[there[0]][there[1]] != "H":
                seen.add(there)
                queue.append((there, steps + 1))
    return None


@pytest.mark.parametrize(
    "options", [{}, {"is_slippery": True}, {"show_map": False, "scope": "level", "levels": 4, "heldout_levels": 4}, {"size": 8}]
)
def test_it_keeps_the_protocol(options: dict[str, Any]) -> None:
    report = check_env(make_suite("frozen-lake", **options), episodes=6)
    assert report.ok, str(report)
    assert report.notes == []


def test_an_episode_to_the_letter() -> None:
    env, task = on(MAPS["4x4"])
    assert env.reset(task, 0)[0].splitlines() == ["@FFF", "FHFH", "FFFH", "HFFG", "row 1, column 1, 30 actions left"]
    assert env.step("Down")[0].splitlines() == ["SFFF", "@HFH", "FFFH", "HFFG", "row 2, column 1, 29 actions left"]
    assert env.step("swim")[0].splitlines()[0] == "That is no action here; nothing moved."
    results = [env.step(action) for action in ("down", "right", "right", "down", "right")]
    assert [result[1] for result in results] == [0.0, 0.0, 0.0, 0.0, 1.0]
    assert results[-1][0].splitlines() == [
        "You reached the goal.",
        "SFFF",
        "FHFH",
        "FFFH",
        "HFF@",
        "row 4, column 4, 23 actions left",
    ]
    assert results[-1][2:4] == (True, False)
    assert results[-1][4]["success"] is True


def test_a_hole_ends_the_episode_without_success() -> None:
    env, task = on(MAPS["4x4"])
    env.reset(task, 0)
    env.step("right")
    observation, reward, terminated, truncated, info = env.step("down")
    assert observation.startswith("You fell into a hole.\n")
    assert (reward, terminated, truncated, info["success"]) == (0.0, True, False, False)


def test_the_turn_limit_truncates() -> None:
    env, task = on(MAPS["4x4"], max_turns=2)
    env.reset(task, 0)
    assert [env.step("up")[2:4] for _ in range(2)] == [(False, False), (False, True)]


def test_without_a_map_only_the_place_is_told() -> None:
    env, task = on(MAPS["4x4"], show_map=False)
    assert env.reset(task, 0)[0] == "row 1, column 1, 30 actions left"
    assert env.step("right")[0] == "row 1, column 2, 29 actions left"


def test_slippery_ice_is_gymnasiums_and_drawn_from_the_seed() -> None:
    env, task = on(["SFF", "FFF", "FHG"], is_slippery=True)
    where: Counter[str] = Counter()
    for seed in range(300):
        env.reset(task, seed)
        observation = env.step("right")[0]
        env.reset(task, seed)
        assert env.step("right")[0] == observation
        where[observation.splitlines()[-1].rsplit(",", 1)[0]] += 1
    assert set(where) == {"row 1, column 1", "row 1, column 2", "row 2, column 1"}
    assert min(where.values()) > 70


def test_every_map_can_be_crossed_has_a_hole_and_is_there_once() -> None:
    suite = FrozenLake(levels=100, heldout_levels=40)
    maps = {task.id: suite.map(task) for split in ("train", "heldout") for task in suite.tasks(split)}  # type: ignore[arg-type]
    assert len(set(maps.values())) == 140
    for rows in maps.values():
        assert steps_to_goal(rows) is not None
        assert "H" in "".join(rows)


def test_heldout_maps_are_no_training_maps_even_mirrored_or_of_another_seed() -> None:
    suite, other = FrozenLake(), FrozenLake(seed=1)
    train = {of.map(task) for of in (suite, other) for task in of.tasks("train")}
    for task in suite.tasks("heldout"):
        rows = suite.map(task)
        assert rows not in train
        assert tuple("".join(column) for column in zip(*rows, strict=True)) not in train


def test_the_expert_takes_a_shortest_way_where_nothing_slips() -> None:
    suite = FrozenLake(levels=20, size=5)
    for task in suite.tasks("train"):
        assert play(suite, task, 0) == (True, steps_to_goal(suite.map(task)))


def test_no_policy_beats_the_experts_on_slippery_ice() -> None:
    # The known optimum of Gymnasium's 4x4 map without a time limit is 14/17 = .82.
    lake = Lake(desc=MAPS["4x4"], is_slippery=True)
    best = best_actions(lake.P, 2000)
    reach = np.zeros(16)
    for left in range(2000):
        reach = np.array(
            [sum(p * (r + (not ends) * reach[to]) for p, to, r, ends in lake.P[s][int(best[left, s])]) for s in range(16)]
        )
    assert reach[0] == pytest.approx(14 / 17, abs=2e-3)


def test_the_expert_on_slippery_ice_does_as_well_as_computed() -> None:
    suite = FrozenLake(levels=1, heldout_levels=0, is_slippery=True, max_turns=100)
    suite.map = lambda task: tuple(MAPS["4x4"])  # type: ignore[method-assign]
    wins = [play(suite, suite.tasks("train")[0], seed)[0] for seed in range(300)]
    assert 0.66 < np.mean(wins) < 0.84


def test_scopes_and_descriptions() -> None:
    shared, named = FrozenLake(), FrozenLake(scope="level", levels=6, heldout_levels=3, show_map=False, is_slippery=True)
    assert {task.scope for task in shared.tasks("train")} == {"frozen-lake"}
    tasks = [*named.tasks("train"), *named.tasks("heldout")]
    assert len({task.scope for task in tasks}) == len({task.description for task in tasks}) == 9
    assert all("hidden holes" in task.description and "slippery" in task.description for task in tasks)
    assert list(FrozenLake(scope="level", levels=9).tasks("train"))[:6] == list(FrozenLake(scope="level", levels=6).tasks("train"))


def test_the_rules_say_what_the_options_do() -> None:
    assert "slippery" not in FrozenLake().instructions
    assert "slippery" in FrozenLake(is_slippery=True).instructions
    assert "H hole" not in FrozenLake(show_map=False).instructions
    assert all(action in FrozenLake().instructions for action in ACTIONS)


@pytest.mark.parametrize(
    "options",
    [
        {"size": 2},
        {"p": 1.0},
        {"levels": 0},
        {"heldout_levels": -1},
        {"max_turns": 0},
        {"scope": "map"},
        {"levels": 100, "size": 3},
    ],
)
def test_options_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(options)) if len(options) == 1 else "ask for fewer"):
        make_suite("frozen-lake", **options)
