"""ALFWorld's rules and words, on a small kitchen and on official games; the suite's protocol, dialects and bad input."""

import json
import lzma
import os
import time
from pathlib import Path

import pytest
from helpers.alfworld import kitchen

from complementary_rl.envs.alfworld.game import NOTHING, Game
from complementary_rl.envs.alfworld.pddl import Goal, TaskType, read_problem
from complementary_rl.envs.alfworld.suite import Alfworld, AlfworldEnv
from complementary_rl.envs.checker import check_env
from complementary_rl.envs.protocol import StepResult
from complementary_rl.envs.registry import make_suite
from complementary_rl.errors import UserError
from complementary_rl.types import Task


@pytest.fixture
def game() -> Game:
    return Game(read_problem(kitchen()))


@pytest.fixture
def play(tmp_path: Path) -> "Play":
    return Play(tmp_path)


class Play:
    """``play(options…)`` opens the kitchen as a file of official games: (environment, opening)."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "games.jsonl"
        row = {"split": "train", "id": "kitchen/1", "task": "put a mug in cabinet", "pddl_problem": kitchen()}
        self.path.write_text(json.dumps(row))

    def __call__(self, **options: object) -> tuple[AlfworldEnv, str]:
        suite = Alfworld(str(self.path), **options)
        env = suite.make_env()
        return env, env.reset(suite.tasks("train")[0], 0)[0]


def says(game: Game, script: str) -> None:
    """Lines of ``> command`` and what the game must say to it."""
    for block in script.strip().split("> ")[1:]:
        command, _, answer = block.partition("\n")
        assert game.do(command.strip()) == answer.strip(), command


def test_it_keeps_the_protocol() -> None:
    report = check_env(make_suite("alfworld", train_tasks=12, heldout_tasks=6), episodes=6)
    assert report.ok, str(report)
    assert report.notes == []


def test_an_opening_to_the_letter(play: Play) -> None:
    assert play()[1] == (
        "-= Welcome to TextWorld, ALFRED! =-\n\n"
        "You are in the middle of a room. Looking quickly around you, you see a cabinet 1, a countertop 1, a drawer 2, a drawer 1, "
        "a fridge 1, a microwave 1, and a sinkbasin 1.\n\n"
        "Your task is to: put a mug in cabinet."
    )


def test_moving_opening_and_carrying_to_the_letter(game: Game) -> None:
    says(
        game,
        """
        > look
        You are in the middle of a room. Looking quickly around you, you see nothing.
        > inventory
        You are not carrying anything.
        > go to countertop 1
        You arrive at countertop 1. On the countertop 1, you see a apple 2, a knife 1, a mug 1, and a sink 1.
        > look
        You are facing the countertop 1. Next to it, you see nothing.
        > examine countertop 1
        On the countertop 1, you see a apple 2, a knife 1, a mug 1, and a sink 1.
        > take mug 1 from countertop 1
        You pick up the mug 1 from the countertop 1.
        > inventory
        You are carrying: a mug 1.
        > examine mug 1
        This is a normal mug 1. In it, you see nothing.
        > go to cabinet 1
        You arrive at cabinet 1. The cabinet 1 is closed.
        > move mug 1 to cabinet 1
        Nothing happens.
        > open cabinet 1
        You open the cabinet 1. The cabinet 1 is open. In it, you see nothing.
        > move mug 1 to cabinet 1
        You move the mug 1 to the cabinet 1.
        > close cabinet 1
        You close the cabinet 1.
        > examine cabinet 1
        The cabinet 1 is closed.
        """,
    )
    assert game.won


def test_help_lists_the_commands(game: Game) -> None:
    lines = game.do("help").split("\n")
    assert lines[:2] == ["Available commands:", "  look:                             look around your current location"]
    assert lines[-2:] == ["  slice (object) with (object):     slice an object using a sharp object", ""]


def test_what_the_original_does_that_surprises(game: Game) -> None:
    # Two drawers share a place, so that one cannot go from one to the other, but need not either.
    says(
        game,
        """
        > go to drawer 1
        You arrive at drawer 1. The drawer 1 is closed.
        > go to drawer 1
        Nothing happens.
        > go to drawer 2
        Nothing happens.
        > use desklamp 1
        You turn on the desklamp 1.
        > look
        You are facing the drawer 2, and drawer 1. Next to it, you see nothing.
        > open drawer 2
        You open the drawer 2. The drawer 2 is open. In it, you see a desklamp 1, and a pen 1.
        > open drawer 1
        You open the drawer 1. The drawer 1 is open. In it, you see a pen 1.
        > examine pen 1
        Nothing happens.
        > take desklamp 1 from drawer 2
        Nothing happens.
        > take pen 1 from drawer 2
        You pick up the pen 1 from the drawer 2.
        > examine drawer 1
        On the drawer 1, you see nothing.
        """.replace("On the drawer 1, you see nothing.", "The drawer 1 is open. In it, you see a pen 1."),
    )


def test_heating_cooling_cleaning_need_the_thing_in_hand_and_not_the_door_open(game: Game) -> None:
    says(
        game,
        """
        > go to countertop 1
        You arrive at countertop 1. On the countertop 1, you see a apple 2, a knife 1, a mug 1, and a sink 1.
        > take apple 2 from countertop 1
        You pick up the apple 2 from the countertop 1.
        > examine apple 2
        There's nothing special about apple 2.
        > take knife 1 from countertop 1
        Nothing happens.
        > go to microwave 1
        You arrive at microwave 1. The microwave 1 is closed.
        > cool apple 2 with microwave 1
        Nothing happens.
        > heat apple 2 with microwave 1
        You heat the apple 2 using the microwave 1.
        > examine apple 2
        This is a hot apple 2.
        > go to sinkbasin 1
        You arrive at sinkbasin 1. On the sinkbasin 1, you see nothing.
        > clean apple 2 with sinkbasin 1
        You clean the apple 2 using the sinkbasin 1.
        > examine apple 2
        This is a hot and clean apple 2.
        > go to fridge 1
        You arrive at fridge 1. The fridge 1 is closed.
        > heat apple 2 with fridge 1
        Nothing happens.
        > cool apple 2 with fridge 1
        You cool the apple 2 using the fridge 1.
        > examine apple 2
        This is a cool and clean apple 2.
        > open fridge 1
        You open the fridge 1. The fridge 1 is open. In it, you see a apple 1.
        > move apple 2 to fridge 1
        You move the apple 2 to the fridge 1.
        > take apple 1 from fridge 1
        You pick up the apple 1 from the fridge 1.
        > examine apple 1
        This is a cold apple 1.
        """,
    )


def test_slicing_needs_a_knife_in_hand_and_the_thing_at_hand(game: Game) -> None:
    says(
        game,
        """
        > go to countertop 1
        You arrive at countertop 1. On the countertop 1, you see a apple 2, a knife 1, a mug 1, and a sink 1.
        > slice apple 2 with knife 1
        Nothing happens.
        > take knife 1 from countertop 1
        You pick up the knife 1 from the countertop 1.
        > slice mug 1 with knife 1
        Nothing happens.
        > slice apple 2 with knife 1
        You sliced the apple 2 with the knife 1.
        > move knife 1 to countertop 1
        You move the knife 1 to the countertop 1.
        > take apple 2 from countertop 1
        You pick up the apple 2 from the countertop 1.
        > examine apple 2
        This is a sliced apple 2.
        """,
    )


@pytest.mark.parametrize(
    ("task", "thing", "target", "script"),
    [
        (
            "pick_and_place_simple",
            "Knife",
            "Drawer",
            "go to countertop 1; take knife 1 from countertop 1; go to drawer 1; open drawer 1; move knife 1 to drawer 1",
        ),
        (
            "pick_clean_then_place_in_recep",
            "Mug",
            "CounterTop",
            "go to countertop 1; take mug 1 from countertop 1; go to sinkbasin 1; "
            "clean mug 1 with sinkbasin 1; go to countertop 1; move mug 1 to countertop 1",
        ),
        (
            "pick_heat_then_place_in_recep",
            "Apple",
            "SinkBasin",
            "go to countertop 1; take apple 2 from countertop 1; go to microwave 1; "
            "heat apple 2 with microwave 1; go to sinkbasin 1; move apple 2 to sinkbasin 1",
        ),
        (
            "pick_cool_then_place_in_recep",
            "Mug",
            "CounterTop",
            "go to countertop 1; take mug 1 from countertop 1; go to fridge 1; "
            "cool mug 1 with fridge 1; go to countertop 1; move mug 1 to countertop 1",
        ),
        (
            "pick_two_obj_and_place",
            "Apple",
            "Fridge",
            "go to countertop 1; take apple 2 from countertop 1; go to fridge 1; open fridge 1; move apple 2 to fridge 1",
        ),
        ("look_at_obj_in_light", "Pen", "DeskLamp", "go to drawer 2; use desklamp 1; open drawer 1; take pen 1 from drawer 1"),
    ],
)
def test_each_task_is_won_by_its_last_step_and_not_before(task: str, thing: str, target: str, script: str) -> None:
    house = read_problem(kitchen(task, thing, target))
    assert house.goal == Goal(TaskType(task), thing.lower(), target.lower())
    game = Game(house)
    *before, last = script.split("; ")
    for command in before:
        assert game.do(command) != NOTHING, command
        assert not game.won, command
    game.do(last)
    assert game.won


def test_admissible_commands_are_what_does_something(game: Game) -> None:
    game.do("go to countertop 1")
    game.do("take apple 2 from countertop 1")
    game.do("go to fridge 1")
    game.do("open fridge 1")
    assert game.admissible() == [
        "close fridge 1",
        "cool apple 2 with fridge 1",
        "examine apple 2",
        "examine fridge 1",
        *(f"go to {name}" for name in ("cabinet 1", "countertop 1", "drawer 1", "drawer 2", "microwave 1", "sinkbasin 1")),
        "help",
        "inventory",
        "look",
        "move apple 2 to fridge 1",
    ]


def test_both_dialects_are_understood_and_one_is_spoken(play: Play) -> None:
    for dialect, command, answer in (
        ("move", "put mug 1 in/on countertop 1", "You move the mug 1 to the countertop 1."),
        ("put", "move mug 1 to countertop 1", "You put the mug 1 in/on the countertop 1."),
        ("put", "put mug 1 on countertop 1", "You put the mug 1 in/on the countertop 1."),
    ):
        env, _ = play(dialect=dialect)
        env.step("go to countertop 1")
        env.step("take mug 1 from countertop 1")
        offered = [text for text in env.admissible() if text.startswith(("move", "put"))]
        assert offered == ["move mug 1 to countertop 1" if dialect == "move" else "put mug 1 in/on countertop 1"]
        assert env.step(command)[0] == answer
    assert "put OBJECT in/on RECEPTACLE" in Alfworld(train_tasks=1, heldout_tasks=1, dialect="put").instructions
    assert "put (object) in/on (receptacle)" in play(dialect="put")[0].step("help")[0]


def test_admissible_commands_are_told_when_asked_for(play: Play) -> None:
    env, opening = play(admissible=True)
    assert opening.endswith(f"\n\nYou can: {', '.join(env.admissible())}.")
    assert (
        "You can: close cabinet 1, examine cabinet 1, go to countertop 1"
        in (env.step("go to cabinet 1"), env.step("open cabinet 1"))[1][0]
    )


def facts(result: StepResult) -> tuple[object, ...]:
    """What follows the observation, without the list of what can be done."""
    *others, info = result[1:]
    return *others, {name: value for name, value in info.items() if name != "actions"}


def test_reward_success_and_the_turn_limit(play: Play) -> None:
    env, _ = play(max_turns=5)
    for command in ("go to countertop 1", "take mug 1 from countertop 1", "go to cabinet 1", "open cabinet 1"):
        assert facts(env.step(command)) == (0.0, False, False, {"success": False, "invalid": False})
    assert facts(env.step("move mug 1 to cabinet 1")) == (1.0, True, False, {"success": True, "invalid": False})
    env, _ = play(max_turns=2)
    assert env.step("look")[2:4] == (False, False)
    assert facts(env.step("look")) == (0.0, False, True, {"success": False, "invalid": False})


@pytest.mark.parametrize(
    "action",
    [
        "",
        " ",
        "go to",
        "go to the moon 1",
        "take mug 1",
        "take mug 1 from fridge 1",
        "take mug 9 from countertop 1",
        "open",
        "go to mug 1",
        "put mug 1 into cabinet 1",
        "heat mug 1 with mug 1",
        "use fridge 1",
        "\x00\x1b[31mlook\x7f",
        "look\nlook",
        "日本語 🙂",
        "<|im_end|>",
        "go to " + "x" * 1_000_000,
        "x " * 500_000,
        "take " + "mug 1 from " * 100_000,
    ],
    ids=lambda action: repr(action[:20]),
)
def test_what_is_no_command_now_is_answered_counted_and_changes_nothing(play: Play, action: str) -> None:
    env, _ = play()
    before = env.admissible()
    start = time.process_time()
    answer = env.step(action)
    assert time.process_time() - start < 0.5
    assert (answer[0], *facts(answer)) == (NOTHING, 0.0, False, False, {"success": False, "invalid": True})
    assert env.admissible() == before


@pytest.mark.parametrize(
    "action", ["Go to Fridge 1", "  go  to\tfridge 1 \n", "`go to fridge 1`", "go to fridge 1.", "> go to fridge 1"]
)
def test_case_spaces_and_marks_do_not_matter(play: Play, action: str) -> None:
    assert play()[0].step(action)[0] == "You arrive at fridge 1. The fridge 1 is closed."


def test_descriptions_tell_the_kind_and_the_goal_and_tasks_share_a_scope() -> None:
    suite = Alfworld(train_tasks=12, heldout_tasks=6)
    for task in (*suite.tasks("train"), *suite.tasks("heldout")):
        kind, _, wording = task.description.partition(": ")
        assert kind in {
            "Pick and place",
            "Pick two and place",
            "Clean and place",
            "Heat and place",
            "Cool and place",
            "Examine in light",
        }
        assert wording == f"{suite.wording(task)}."
        assert task.scope == "alfworld"
    assert len({task.description.partition(":")[0] for task in suite.tasks("train")}) == 6


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_turns": 0}, "max_turns"),
        ({"train_tasks": -1}, "train_tasks"),
        ({"dialect": "place"}, "move or put"),
        ({"heldout": "test"}, "valid_seen or valid_unseen"),
        ({"task_types": "pick_heat_then_place_in_recep,boil"}, "no task type 'boil'"),
    ],
)
def test_options_out_of_range(options: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        make_suite("alfworld", **options)


def test_a_task_of_another_suite(play: Play) -> None:
    with pytest.raises(UserError, match="no game"):
        play()[0].reset(Task("alfworld/nowhere", "alfworld", "Find it.", 0), 0)


def test_it_is_fast(play: Play) -> None:
    env, _ = play()
    text = kitchen()
    loads = []
    steps = []
    for _ in range(20):
        start = time.process_time()
        Game(read_problem(text))
        loads.append(time.process_time() - start)
        start = time.process_time()
        for command in (
            "go to countertop 1",
            "take mug 1 from countertop 1",
            "look",
            "move mug 1 to countertop 1",
            "go to fridge 1",
        ):
            env.step(command)
        steps.append((time.process_time() - start) / 5)
    # Measured on official games 1 ms and 0.02 ms; the medians leave room for a busy machine.
    assert sorted(loads)[10] < 0.01
    assert sorted(steps)[10] < 0.0005


def test_official_walkthroughs_win() -> None:
    """Every hundredth of the games in the shared data; all of them: ``python -m benchmarks.alfworld_walkthroughs``."""
    folder = os.environ.get("CRL_SHARED_DATA")
    path = Path(folder or "", "alfworld", "games.jsonl.xz")
    if not folder or not path.is_file():
        pytest.skip("needs official games: CRL_SHARED_DATA names no folder with alfworld/games.jsonl.xz")
    with lzma.open(path) as lines:
        rows = [json.loads(line) for number, line in enumerate(lines) if number % 100 == 0]
    assert len(rows) > 30
    for row in rows:
        game = Game(read_problem(row["pddl_problem"]))
        *before, last = row["walkthrough"]
        assert all(game.do(command) != NOTHING and not game.won for command in before), row["id"]
        game.do(last)
        assert game.won, row["id"]
