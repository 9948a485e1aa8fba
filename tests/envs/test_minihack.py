"""MiniHack levels as text: MiniHack's own levels, NetHack's fog of war, numbers and places right, actions that do what they say."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("nle", reason="needs the extra 'minihack'")
pytest.importorskip("minihack", reason="needs the extra 'minihack'")

from helpers.nethack import Start, drawn, episodes

from complementary_rl.envs.checker import check_env
from complementary_rl.envs.minihack.compass import KEYS, STEPS, towards
from complementary_rl.envs.minihack.game import compile_level
from complementary_rl.envs.minihack.levels import LEVELS
from complementary_rl.envs.minihack.suite import MiniHackLevels
from complementary_rl.envs.registry import make_suite
from complementary_rl.errors import UserError
from complementary_rl.seeds import rng

MINIHACK_CLASSES = {
    "room-5x5": "room:MiniHackRoom5x5",
    "room-5x5-random": "room:MiniHackRoom5x5Random",
    "room-5x5-dark": "room:MiniHackRoom5x5Dark",
    "room-5x5-monster": "room:MiniHackRoom5x5Monster",
    "room-5x5-trap": "room:MiniHackRoom5x5Trap",
    "room-5x5-ultimate": "room:MiniHackRoom5x5Ultimate",
    "room-15x15": "room:MiniHackRoom15x15",
    "room-15x15-random": "room:MiniHackRoom15x15Random",
    "room-15x15-dark": "room:MiniHackRoom15x15Dark",
    "room-15x15-monster": "room:MiniHackRoom15x15Monster",
    "room-15x15-trap": "room:MiniHackRoom15x15Trap",
    "room-15x15-ultimate": "room:MiniHackRoom15x15Ultimate",
    "mazewalk-9x9": "mazewalk:MiniHackMazeWalk9x9",
    "keyroom-dark-s5": "keyroom:MiniHackKeyRoom5x5Dark",
    "river-narrow": "river:MiniHackRiverNarrow",
}


@pytest.fixture
def start() -> Iterator[Start]:
    with episodes() as opening:
        yield opening


def line(observation: str, label: str) -> str:
    return next((text.removeprefix(label) for text in observation.splitlines() if text.startswith(label)), "")


def find(observation: str, character: str) -> list[tuple[int, int]]:
    return [(x, y) for y, row in enumerate(drawn(observation)) for x, found in enumerate(row) if found == character]


def offsets(observation: str, what: str) -> list[tuple[int, int]]:
    """(dx, dy) of the places told after ``what: `` in the line of things seen."""
    part = next((part for part in line(observation, "Seen: ").split("; ") if part.startswith(f"{what}: ")), "")
    places = []
    for place in part.removeprefix(f"{what}: ").split(", ") if part else []:
        words = place.split()
        moves = [(int(words[i]), STEPS[words[i + 1]]) for i in range(0, len(words), 2)]
        places.append((sum(n * dx for n, (dx, _) in moves), sum(n * dy for n, (_, dy) in moves)))
    return places


def test_the_levels_are_those_of_the_paper_and_minihack_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    from minihack.navigation import MiniHackNavigation

    assert set(LEVELS) == set(MINIHACK_CLASSES)
    caught: list[str] = []
    monkeypatch.setattr(MiniHackNavigation, "__init__", lambda self, *_, des_file, **__: caught.append(des_file))
    for level, where in MINIHACK_CLASSES.items():
        module, name = where.split(":")
        getattr(importlib.import_module(f"minihack.envs.{module}"), name)()
        assert LEVELS[level].des_file() == caught[-1]


@pytest.mark.parametrize("level", LEVELS)
def test_each_suite_keeps_the_protocol(level: str) -> None:
    suite = make_suite(f"minihack/{level}", train_tasks=3, heldout_tasks=2)
    report = check_env(suite, episodes=3)
    assert report.ok, str(report)
    assert report.notes == []


def test_descriptions_tell_levels_apart_in_words() -> None:
    descriptions = [LEVELS[level].description for level in LEVELS]
    assert len(set(descriptions)) == len(descriptions)
    for text in descriptions:
        assert "staircase down" in text
        assert "Hazards: " in text
        assert re.fullmatch(r"[\w .,;:x-]+", text)


def test_an_observation_to_the_letter(start: Start) -> None:
    _, observation = start("room-5x5")
    assert observation.splitlines()[:9] == [
        "HP 12/12, turn 1, 30 actions left",
        "Map (north is up):",
        "@....",
        ".....",
        ".....",
        ".....",
        "....>",
        "Legend: @ you; . floor of a room; > staircase down",
        "Seen: staircase down: 4 south 4 east",
    ]
    assert line(observation, "You carry: ").startswith("a +0 short sword (weapon in hand); ")


def test_reaching_the_staircase_is_reward_one_and_success(start: Start) -> None:
    env, _ = start("room-5x5")
    results = [env.step("south-east") for _ in range(4)]
    assert [result[1:] for result in results[:3]] == [(0.0, False, False, {"success": False})] * 3
    assert results[3] == ("You reached the staircase down.", 1.0, True, False, {"success": True})


def test_the_turn_limit_truncates_without_success(start: Start) -> None:
    env, _ = start("room-5x5", max_turns=3)
    results = [env.step("search") for _ in range(3)]
    assert [result[3] for result in results] == [False, False, True]
    assert not results[2][2]
    assert results[2][4] == {"success": False}
    assert "0 actions left" in results[2][0]


def test_dying_ends_the_episode_without_success_and_says_of_what(start: Start) -> None:
    for task in range(10):
        env, observation = start("room-15x15-monster", task=task, max_turns=500)
        health = set()
        while True:
            health.add(int(re.match(r"HP (\d+)/12", observation)[1]))  # type: ignore[index]
            observation, reward, terminated, truncated, info = env.step("search")
            if terminated or truncated:
                break
        if terminated:
            assert (reward, truncated, info) == (0.0, False, {"success": False})
            assert re.fullmatch(r"Message: .+\nYou died\.", observation), observation
            assert len(health) > 2
            return
    raise AssertionError("nobody died in ten rooms of monsters")


@pytest.mark.parametrize("level", ["room-15x15-random", "room-15x15-ultimate", "river-narrow", "mazewalk-9x9", "keyroom-dark-s5"])
def test_what_is_told_is_where_the_map_shows_it(start: Start, level: str) -> None:
    symbols = {"staircase down": ">", "staircase up": "<", "a boulder": "`", "teleportation trap": "^", "closed door": "+"}
    env, observation = start(level, task=1, max_turns=120)
    random = rng("walk", level)
    checked = 0
    for _ in range(100):
        ((here_x, here_y),) = find(observation, "@")
        for what, symbol in symbols.items():
            shown = {(x - here_x, y - here_y) for x, y in find(observation, symbol)}
            told = offsets(observation, what) if "more" not in line(observation, "Seen: ") else list(shown)
            assert set(told) == shown
            distances = [max(abs(dx), abs(dy)) for dx, dy in offsets(observation, what)]
            assert distances == sorted(distances)
            checked += len(shown)
        legend = {part[0] for part in line(observation, "Legend: ").split("; ")}
        assert legend >= {character for row in drawn(observation) for character in row} - {" "}
        observation, _, terminated, _, _ = env.step(list(KEYS)[random.integers(8)])
        if terminated:
            break
    assert checked


def test_fog_of_war(start: Start) -> None:
    def known(observation: str) -> int:
        return sum(character != " " for row in drawn(observation) for character in row)

    assert known(start("room-15x15-random")[1]) == 225
    env, observation = start("room-15x15-dark")
    assert known(observation) <= 9
    seen = [known(env.step(word)[0]) for word in ("east", "east", "south", "south", "west", "west")]
    assert seen == sorted(seen)
    assert 9 < seen[-1] < 60
    assert known(start("mazewalk-9x9")[1]) < 30


def test_the_task_makes_the_level_and_the_episode_only_the_dice(start: Start) -> None:
    maps = {seed: drawn(start("room-15x15-monster", task=3, seed=seed)[1]) for seed in (0, 1)}
    assert maps[0] == maps[1]
    assert drawn(start("room-15x15-monster", task=4)[1]) != maps[0]


def test_heldout_levels_are_other_levels() -> None:
    suite = MiniHackLevels("room-15x15-random", train_tasks=40, heldout_tasks=40)
    env = suite.make_env()
    maps = {split: {"\n".join(drawn(env.reset(task, 0)[0])) for task in suite.tasks(split)} for split in ("train", "heldout")}  # type: ignore[arg-type]
    assert len(maps["train"]) > 35
    assert len(maps["train"] & maps["heldout"]) <= 1
    env.close()


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("north", (0, -1)),
        ("  South-West ", (-1, 1)),
        ("northeast", (1, -1)),
        ("south east.", (1, 1)),
        ("go west", (-1, 0)),
        ("move to the east", (1, 0)),
        ("**north_west**", (-1, -1)),
    ],
)
def test_moves_however_they_are_spelled(start: Start, text: str, step: tuple[int, int]) -> None:
    env, observation = start("room-15x15-random", task=2)
    (before,) = find(observation, "@")
    (after,) = find(env.step(text)[0], "@")
    assert (after[0] - before[0], after[1] - before[1]) == step


@pytest.mark.parametrize("text", ["", "up", "kick north", "pick up", "apply key north", "north north", "i", "#quit", "\x1b", "S"])
def test_what_is_no_action_costs_an_action_but_no_game_time(start: Start, text: str) -> None:
    env, opening = start("room-5x5")
    observation, reward, terminated, truncated, _ = env.step(text)
    assert observation.startswith("That is not an action here; nothing happened.\nHP 12/12, turn 1, 29 actions left\n")
    assert drawn(observation) == drawn(opening)
    assert (reward, terminated, truncated) == (0.0, False, False)


def test_walls_say_so(start: Start) -> None:
    env, _ = start("room-5x5")
    assert line(env.step("north")[0], "Message: ") == "It's solid stone."


def test_the_inventory_is_told_when_it_changes(start: Start) -> None:
    env, opening = start("keyroom-dark-s5")
    assert line(opening, "You carry: ")
    assert not line(env.step("search")[0], "You carry: ")


def test_a_key_room_from_key_to_staircase(start: Start) -> None:
    env, observation = start("keyroom-dark-s5", max_turns=3000)
    random = rng("explore")
    assert line(env.step("apply key")[0], "Message: ") == "You have no key."
    events = []
    for _ in range(2900):
        message = line(observation, "Message: ")
        doors = [place for place in offsets(observation, "closed door") if 0 in place and sum(map(abs, place)) == 1]
        if "You see here a key" in message:
            action = "pick up"
        elif "key" in events and doors and "door" not in events:
            action = f"apply key {towards(*doors[0])}"
        else:
            action = list(KEYS)[random.integers(8)]
        observation, reward, terminated, _, info = env.step(action)
        if action == "pick up":
            assert "key" in line(observation, "You carry: ")
            events.append("key")
            if not offsets(observation, "closed door"):
                assert line(env.step("apply key")[0], "Message: ") == "There is no closed door next to you."
        elif action.startswith("apply"):
            assert "You succeed in unlocking the door." in line(observation, "Message: ")
            assert "The door opens." in line(observation, "Message: ")
            assert "rumors" not in observation
            assert "?" not in line(observation, "Message: ")
            assert "open door" in line(observation, "Legend: ")
            events.append("door")
        if terminated:
            assert (reward, info) == (1.0, {"success": True})
            break
    assert events == ["key", "door"]
    assert terminated


def test_a_locked_door_needs_its_key(start: Start) -> None:
    random = rng("no key")
    env, observation = start("keyroom-dark-s5", max_turns=1000)
    for _ in range(900):
        doors = [place for place in offsets(observation, "closed door") if 0 in place and sum(map(abs, place)) == 1]
        if doors:
            assert "This door is locked" in line(env.step(towards(*doors[0]))[0], "Message: ")
            assert line(env.step(f"apply key {towards(*doors[0])}")[0], "Message: ") == "You have no key."
            return
        observation = env.step(list(KEYS)[random.integers(8)])[0]
    raise AssertionError("no door found")


def test_a_boulder_pushed_into_the_river_makes_a_bridge(start: Start) -> None:
    for task in range(30):
        env, observation = start("river-narrow", task=task, max_turns=60)
        straight = [dx for dx, dy in offsets(observation, "a boulder") if dy == 0 and dx > 0]
        if len(straight) != 1:
            continue
        for _ in range(25):
            observation = env.step("east")[0]
            if "You push the boulder into the water. Now you can cross it!" in line(observation, "Message: "):
                ((x, y),) = find(observation, "@")
                assert drawn(observation)[y][x + 1] == "."
                observation = env.step("east")[0]
                assert find(observation, "@") == [(x + 1, y)]
                return
    raise AssertionError("no boulder reached the river")


def test_teleport_traps_teleport(start: Start) -> None:
    env, observation = start("room-15x15-trap", task=2, max_turns=500)
    random = rng("traps")
    for _ in range(400):
        ((x, y),) = find(observation, "@")
        observation, _, terminated, _, _ = env.step(list(KEYS)[random.integers(8)])
        assert not terminated
        ((new_x, new_y),) = find(observation, "@")
        if max(abs(new_x - x), abs(new_y - y)) > 1:
            assert "teleportation trap" in line(observation, "Legend: ")
            return
    raise AssertionError("no trap was stepped on")


@pytest.mark.parametrize("options", [{"train_tasks": 0}, {"heldout_tasks": -1}, {"max_turns": 0}])
def test_options_out_of_range(options: dict[str, int]) -> None:
    with pytest.raises(UserError, match=next(iter(options))):
        make_suite("minihack/room-5x5", **options)


def test_unknown_levels() -> None:
    with pytest.raises(UserError, match="room-5x5-dark"):
        MiniHackLevels("room-6x6")


def test_a_level_that_does_not_compile_says_why() -> None:
    with pytest.raises(RuntimeError, match="lev_comp failed"):
        compile_level("MAZE: nonsense")


def test_the_rules_list_the_actions_of_the_level() -> None:
    plain: Any = make_suite("minihack/room-5x5", max_turns=12)
    assert "12 actions" in plain.instructions
    assert all(word in plain.instructions for word in KEYS)
    assert "apply key" not in plain.instructions
    assert "apply key DIRECTION" in MiniHackLevels("keyroom-dark-s5").instructions
    assert "push a boulder" in MiniHackLevels("river-narrow").instructions
