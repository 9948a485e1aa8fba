"""Generated households: valid, winnable, disjoint rooms, from the seed; and the scripted player that wins them without an oracle."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from complementary_rl.envs.alfworld.game import NOTHING
from complementary_rl.envs.alfworld.generator import generate, rooms
from complementary_rl.envs.alfworld.household import PLACES, ROOMS
from complementary_rl.envs.alfworld.pddl import TaskType
from complementary_rl.envs.alfworld.player import Player, understand
from complementary_rl.envs.alfworld.suite import Alfworld, AlfworldEnv
from complementary_rl.envs.playing import expert_player, play_episode
from complementary_rl.types import Task


@pytest.fixture(scope="module")
def suite() -> Alfworld:
    return Alfworld(train_tasks=120, heldout_tasks=60, max_turns=500)


def turns_of(env: AlfworldEnv, task: Task) -> int:
    """How many turns the scripted player takes; it must win."""
    commands = Player().play(env.reset(task, 0)[0])
    command = next(commands)
    for turn in range(1, 501):
        observation, _, won, _, _ = env.step(command)
        if won:
            return turn
        assert command != "look", f"{task.id}: gave up after {turn} turns"
        command = commands.send(observation)
    raise AssertionError(f"{task.id}: not won")


def test_every_game_can_be_won_and_nearly_all_within_fifty_turns(suite: Alfworld) -> None:
    env = suite.make_env()
    turns = [turns_of(env, task) for task in (*suite.tasks("train"), *suite.tasks("heldout"))]
    assert sum(turn <= 50 for turn in turns) >= 0.98 * len(turns)
    # Not trivial either: the thing must be found.
    assert sorted(turns)[len(turns) // 2] >= 7


def test_no_game_begins_won(suite: Alfworld) -> None:
    env = suite.make_env()
    for task in suite.tasks("train"):
        env.reset(task, 0)
        assert env.step("look")[2] is False


def test_the_six_types_come_equally_often_and_all_rooms_occur(suite: Alfworld) -> None:
    kinds = Counter(task.id.split("/")[2].partition("-")[0] for task in suite.tasks("train"))
    assert kinds == {str(task): 20 for task in TaskType}
    found = {re.sub(r"\d+", "", room) for room in _rooms(suite.tasks("train"))}
    assert found == {"kitchen", "bathroom", "bedroom", "livingroom"}


def test_heldout_rooms_are_other_rooms(suite: Alfworld) -> None:
    assert not set(_rooms(suite.tasks("train"))) & set(_rooms(suite.tasks("heldout")))
    furniture = [
        (room.kind, tuple(sorted(Counter(kind for kind, _ in room.receptacles.values()).items())))
        for split in ("train", "heldout")
        for room in rooms(0, split)
    ]
    assert len(furniture) == len(set(furniture)) == 100


def test_games_come_from_the_seed_one_by_one() -> None:
    game = generate(3, "train", 7, TaskType.HEAT)
    assert generate(3, "train", 7, TaskType.HEAT) == game
    assert generate(4, "train", 7, TaskType.HEAT) != game
    assert generate(3, "train", 8, TaskType.HEAT) != game
    few, many = Alfworld(train_tasks=3, heldout_tasks=1), Alfworld(train_tasks=9, heldout_tasks=2)
    assert list(many.tasks("train"))[:3] == list(few.tasks("train"))


def test_things_lie_where_they_may(suite: Alfworld) -> None:
    for task in suite.tasks("train")[:24]:
        house = suite.house(task)
        places = {thing.lower(): [place.lower() for place in where] for thing, where in PLACES.items()}
        for receptacle, things in house.inside.items():
            for thing in things:
                assert house.types[receptacle] in places[house.types[thing]]
                pickupable = thing in house.having("pickupable")
                assert pickupable == (house.types[thing] in house.can_contain.get(house.types[receptacle], ()))


def test_every_thing_of_a_room_has_its_places() -> None:
    for kind in ROOMS.values():
        for thing in kind.things:
            assert set(PLACES[thing]) & set(kind.receptacles), thing


@pytest.mark.parametrize(
    ("wording", "meaning"),
    [
        ("put some mug on desk", (TaskType.PLACE, "mug", "desk")),
        ("find two pen and put them in drawer", (TaskType.TWO, "pen", "drawer")),
        ("put a clean cloth in toilet", (TaskType.CLEAN, "cloth", "toilet")),
        ("heat some egg and put it in fridge", (TaskType.HEAT, "egg", "fridge")),
        ("put a cool pan in countertop", (TaskType.COOL, "pan", "countertop")),
        ("examine the cd with the desklamp", (TaskType.LIGHT, "cd", "desklamp")),
    ],
)
def test_the_player_understands_the_tasks(wording: str, meaning: tuple[TaskType, str, str]) -> None:
    assert understand(wording) == meaning


def test_the_player_says_what_it_cannot_read() -> None:
    with pytest.raises(ValueError, match="boil an egg"):
        next(Player().play("You see a desk 1.\n\nYour task is to: boil an egg."))


def test_the_player_gives_up_where_there_is_nothing_to_find() -> None:
    commands = Player().play("You see a desk 1, and a bed 1.\n\nYour task is to: put a mug in desk.")
    assert next(commands) == "go to desk 1"
    assert commands.send("You arrive at desk 1. On the desk 1, you see nothing.") == "go to bed 1"
    assert commands.send(NOTHING) == "examine bed 1"
    assert commands.send("On the bed 1, you see nothing.") == "look"
    assert commands.send("You are facing the bed 1.") == "look"


def _rooms(tasks: Iterator[Task]) -> Iterator[str]:
    return (task.id.split("/")[2].rpartition("-")[2] for task in tasks)


@pytest.mark.parametrize("options", [{}, {"admissible": True, "dialect": "put"}])
def test_the_player_is_the_expert_in_every_dialect(options: dict[str, Any]) -> None:
    suite = Alfworld(train_tasks=12, heldout_tasks=1, **options)
    env = suite.make_env()
    outcomes = [play_episode(suite, env, task, 0, expert_player(suite, task, 0)) for task in suite.tasks("train")]
    assert sum(outcome.success for outcome in outcomes) >= 11


def test_no_expert_for_tasks_in_other_words(suite: Alfworld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "wording", lambda task: "boil an egg")
    assert suite.expert(suite.tasks("train")[0], 0) is None


def test_what_can_be_done_is_in_info_and_not_told() -> None:
    suite = Alfworld(train_tasks=1, heldout_tasks=1, dialect="put")
    env = suite.make_env()
    opening, info = env.reset(suite.tasks("train")[0], 0)
    assert info["actions"] == env.admissible()
    assert "look" in info["actions"]
    move = next(action for action in info["actions"] if action.startswith("go to "))
    observation, *_, info = env.step(move)
    assert info["actions"] == env.admissible()
    assert "You can: " not in opening + observation
