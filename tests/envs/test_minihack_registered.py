"""MiniHack's registered levels by id: goals in words, commands in words, views, seeds, and errors that name the remedy."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("nle", reason="needs the extra 'minihack'")
pytest.importorskip("minihack", reason="needs the extra 'minihack'")

from helpers.nethack import Start, drawn, episodes

from complementary_rl.envs.checker import check_env
from complementary_rl.envs.minihack.registered import RegisteredEnv
from complementary_rl.envs.registry import make_suite
from complementary_rl.errors import UserError


@pytest.fixture
def start() -> Iterator[Start]:
    with episodes() as opening:
        yield opening


def seen(observation: str) -> str:
    return next(line for line in observation.splitlines() if line.startswith("Seen: "))


def go_to(env: RegisteredEnv, observation: str, what: str) -> str:
    """Walk over open floor to the nearest place of `what`."""
    while match := re.search(rf"{what}: ((?:\d+ \w+ ?)+)", seen(observation)):
        moves = dict(re.findall(r"(\d+) (\w+)", match[1])[::-1])
        words = {word: int(number) for number, word in moves.items()}
        observation = env.step("-".join(word for word in ("north", "south", "east", "west") if word in words))[0]
    return observation


@pytest.mark.parametrize(
    "level", ["Corridor-R2-v0", "Eat-Distr-v0", "KeyRoom-S5-v0", "Memento-F2-v0", "Freeze-Random-Restricted-v0", "Sokoban1a-v1"]
)
def test_levels_keep_the_protocol(level: str) -> None:
    report = check_env(make_suite(f"minihack/{level}", train_tasks=2, heldout_tasks=2, max_turns=25), episodes=3)
    assert report.ok, str(report)
    assert report.notes == []


def test_goals_in_words() -> None:
    def goal(level: str) -> str:
        return make_suite(f"minihack/{level}").tasks("train")[0].description

    assert goal("Corridor-R2-v0") == "Reach the staircase down in NetHack's level Corridor R2."
    assert goal("Pray-Fixed-v0") == "Pray where the altar is in NetHack's level Pray Fixed."
    # MiniHack ends Memento by a squeak as well, which it punishes: no goal.
    assert goal("Memento-F2-v0") == 'Bring about the message "You kill the grid bug" in NetHack\'s level Memento F2.'


def test_the_rules_list_the_commands_of_the_level() -> None:
    corridor = make_suite("minihack/Corridor-R2-v0").instructions
    assert "\n- open DIRECTION\n" in corridor
    assert "zap" not in corridor
    assert "ITEM is" not in corridor
    assert "\n- zap ITEM DIRECTION\n" in make_suite("minihack/Zap-v0").instructions


def test_the_staircase_of_a_level_by_id_is_that_of_our_own(start: Start) -> None:
    env, observation = start("Room-5x5-v0")
    assert drawn(observation) == ["@....", ".....", ".....", ".....", "....>"]
    results = [env.step("south-east") for _ in range(4)]
    assert [result[1] for result in results] == [0.0, 0.0, 0.0, 1.0]
    assert results[3] == ("You reached your goal.", 1.0, True, False, {"success": True})


def test_praying_on_the_altar_succeeds_and_elsewhere_does_not(start: Start) -> None:
    env, observation = start("Pray-Fixed-v0")
    observation = go_to(env, observation, r"(?:\w+ )*altar")
    observation, reward, terminated, _, info = env.step("pray")
    assert (reward, terminated, info["success"]) == (1.0, True, True), observation


def test_wearing_by_a_word_of_the_name(start: Start) -> None:
    env, observation = start("Levitate-Boots-Fixed-v0", max_turns=200)
    go_to(env, observation, "(?:\\w+ )*boots")
    observation = env.step("pick up")[0]
    assert "boots" in observation
    results = [env.step("wear boots")]
    while not results[-1][2] and len(results) < 5:
        results.append(env.step("search"))
    assert results[-1][4]["success"], results


def test_a_question_that_stays_open_is_told(start: Start) -> None:
    env, _ = start("Zap-Fixed-v0")
    observation, _, terminated, _, _ = env.step("eat")
    assert "What do you want to eat?" in observation or "You don't have anything to eat" in observation
    assert not terminated
    assert env.step("kick")[0].splitlines()[-1].startswith("Message: In what direction?")
    assert "HP" in env.step("search")[0]


@pytest.mark.parametrize("text", ["", "dance", "zap wand north", "north north", "#quit", "openly east"])
def test_what_is_no_action_there_does_nothing(start: Start, text: str) -> None:
    env, opening = start("Corridor-R2-v0")
    observation = env.step(text)[0]
    assert observation.startswith("That is not an action here; nothing happened.\nHP 12/12, turn 1, 99 actions left\n")
    assert drawn(observation) == drawn(opening)


def test_fixed_levels_stay_and_fresh_ones_change(start: Start) -> None:
    fixed = {"\n".join(drawn(start("Room-Random-15x15-v0", seed=seed)[1])) for seed in range(4)}
    fresh = ["\n".join(drawn(start("Room-Random-15x15-v0", seed=seed, fresh_levels=True)[1])) for seed in range(4)]
    assert len(fixed) == 1
    assert len(set(fresh)) == 4
    assert "\n".join(drawn(start("Room-Random-15x15-v0", seed=2, fresh_levels=True)[1])) == fresh[2]
    ours = {start("room-15x15-random", seed=seed, fresh_levels=True)[1] for seed in range(4)}
    assert len(ours) == 4


@pytest.mark.parametrize("level", ["Room-15x15-v0", "room-15x15"])
def test_crop_shows_the_square_around_the_hero(start: Start, level: str) -> None:
    env, observation = start(level, crop=5)
    assert drawn(observation) == ["@..", "...", "..."]
    assert seen(observation) == "Seen: nothing notable"
    for _ in range(3):
        observation = env.step("south-east")[0]
    # Five cells a side, the hero in the middle.
    assert drawn(observation) == [".....", ".....", "..@..", ".....", "....."]


@pytest.mark.parametrize("level", ["Room-5x5-v0", "room-5x5"])
def test_language_tells_what_is_around_without_a_map(start: Start, level: str) -> None:
    env, observation = start(level, view="language")
    assert "Map" not in observation and "Legend" not in observation
    assert (
        "Around you: nothing seen: north, north-east, south-west, west, north-west; floor of a room: east, south-east, south"
        in observation
    )
    assert seen(observation) == "Seen: staircase down: 4 south 4 east"
    assert "Map" not in env.step("north")[0]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("minihack/Coridor-R2-v0", "did you mean 'minihack/Corridor-R2-v0'"),
        ("minihack/Corridor-R2", "did you mean 'minihack/Corridor-R2-v0'"),
        ("minihack/room-6x6-dark", "did you mean 'minihack/room-5x5-dark'"),
        ("minihack/Boxoban-Hard-v0", "download maps"),
        ("minihack/LavaCrossingS9N1-v0", "cannot be played here: .*[gG]rid.*; choose another level"),
        ("minihack/Skill-Custom-v0", "write a Suite"),
    ],
)
def test_ids_that_cannot_be_played(name: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        make_suite(name)


@pytest.mark.parametrize("name", ["minihack/Eat-v0", "minihack/room-5x5"])
@pytest.mark.parametrize(
    "options", [{"train_tasks": 0}, {"heldout_tasks": -1}, {"max_turns": 0}, {"view": "pixels"}, {"crop": 4}, {"crop": 99}]
)
def test_options_out_of_range(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(options))):
        make_suite(name, **options)
