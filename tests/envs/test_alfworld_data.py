"""ALFWorld games from files: the official folders and JSON lines, splits, samples, and what is said of broken ones."""

import json
import lzma
import os
from pathlib import Path
from typing import Any

import pytest
from helpers.alfworld import kitchen, official_game

from complementary_rl.envs.alfworld.data import load
from complementary_rl.envs.alfworld.suite import Alfworld
from complementary_rl.envs.checker import check_env
from complementary_rl.errors import UserError


@pytest.fixture
def official(tmp_path: Path) -> Path:
    """A folder as ``alfworld-download`` leaves it: three splits, and games that alfworld leaves out."""
    root = tmp_path / "movable_disk" / "json_2.1.1"
    for split, count in (("train", 3), ("valid_seen", 2), ("valid_unseen", 1)):
        for number in range(count):
            official_game(root / split / "pick_and_place_simple-Mug-None-Cabinet-1" / f"trial_{number}")
    official_game(root / "train" / "pick_and_place_with_movable_recep-Mug-Pan-Cabinet-1" / "trial_0")
    official_game(root / "train" / "pick_and_place_simple-AppleSliced-None-Fridge-1" / "trial_0")
    official_game(root / "train" / "pick_and_place_simple-Mug-None-Safe-1" / "trial_0", solvable=False)
    initial_state(root / "train" / "pick_and_place_simple-Mug-None-Shelf-1" / "trial_0")
    return root


def initial_state(folder: Path, task: str = "pick_heat_then_place_in_recep", **changes: Any) -> None:
    """A trial without its game file."""
    folder.mkdir(parents=True)
    (folder / "initial_state.pddl").write_text(kitchen("pick_heat_then_place_in_recep", "Apple", "Fridge"))
    parameters = {
        "object_target": "Apple",
        "parent_target": "Fridge",
        "toggle_target": "",
        "mrecep_target": "",
        "object_sliced": False,
    }
    (folder / "traj_data.json").write_text(json.dumps({"task_type": task, "pddl_params": parameters, **changes}))


def lines(path: Path, *rows: object) -> Path:
    text = "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_bytes(lzma.compress(text.encode()) if path.suffix == ".xz" else text.encode())
    return path


def row(split: str = "train", number: int = 0, **changes: object) -> dict[str, object]:
    return {"split": split, "id": f"kitchen/{number}", "task": "put a mug in cabinet", "pddl_problem": kitchen(), **changes}


def ids(suite: Alfworld, split: Any) -> list[str]:
    return [task.id for task in suite.tasks(split)]


def test_an_official_folder(official: Path) -> None:
    suite = Alfworld(str(official))
    name = "pick_and_place_simple-Mug-None-Cabinet-1"
    assert ids(suite, "train") == [f"alfworld/train/{name}/trial_{number}" for number in range(3)]
    assert ids(suite, "heldout") == [f"alfworld/valid_unseen/{name}/trial_0"]
    assert suite.tasks("train")[0].description == "Pick and place: put a mug in cabinet."
    assert len(Alfworld(str(official), heldout="valid_seen").tasks("heldout")) == 2
    report = check_env(suite, episodes=2)
    assert report.ok, str(report)


def test_any_part_of_an_official_folder(official: Path) -> None:
    trial = official / "valid_seen" / "pick_and_place_simple-Mug-None-Cabinet-1" / "trial_1"
    for part in (trial, trial / "game.tw-pddl"):
        assert [(one.split, one.id) for one in load(str(part))] == [("valid_seen", f"{trial.parent.name}/trial_1")]
    assert len(load(str(official / "train"))) == 3
    assert len(load(str(official.parent))) == 6


def test_initial_states_do_where_there_are_no_games(tmp_path: Path) -> None:
    initial_state(tmp_path / "train" / "pick_heat_then_place_in_recep-Apple-None-Fridge-1" / "trial_0")
    initial_state(tmp_path / "train" / "other-1" / "trial_0", task="pick_and_place_with_movable_recep")
    [one] = load(str(tmp_path))
    assert one.wording in ("put a hot apple in fridge", "heat some apple and put it in fridge")
    assert one.house().goal.thing == "apple"


@pytest.mark.parametrize("name", ["games.jsonl", "games.jsonl.xz"])
def test_json_lines(tmp_path: Path, name: str) -> None:
    path = lines(tmp_path / name, row("valid_seen", 3), row("train", 2), row("train", 1))
    suite = Alfworld(str(path), heldout="valid_seen")
    assert ids(suite, "train") == ["alfworld/train/kitchen/1", "alfworld/train/kitchen/2"]
    assert ids(suite, "heldout") == ["alfworld/valid_seen/kitchen/3"]


def test_samples_are_drawn_by_the_seed_and_kept_in_order(tmp_path: Path) -> None:
    path = lines(tmp_path / "games.jsonl", *(row("train", number) for number in range(10)))
    draws = [ids(Alfworld(str(path), train_tasks=4, seed=seed), "train") for seed in range(5)]
    assert all(len(draw) == 4 and draw == sorted(draw) for draw in draws)
    assert len({tuple(draw) for draw in draws}) > 1
    assert draws[0] == ids(Alfworld(str(path), train_tasks=4), "train")
    with pytest.raises(UserError, match="has 10 games, not 11"):
        Alfworld(str(path), train_tasks=11)


def test_task_types_are_kept_or_left_out(tmp_path: Path) -> None:
    heat = row("train", 1, pddl_problem=kitchen("pick_heat_then_place_in_recep", "Apple", "Fridge"))
    path = str(lines(tmp_path / "games.jsonl", row(), heat))
    assert ids(Alfworld(path, task_types="pick_heat_then_place_in_recep"), "train") == ["alfworld/train/kitchen/1"]
    with pytest.raises(UserError, match=r"no games of the split train .* it has none"):
        Alfworld(path, task_types="pick_two_obj_and_place")


def test_a_split_that_is_missing(tmp_path: Path) -> None:
    path = str(lines(tmp_path / "games.jsonl", row(), row("valid_seen")))
    with pytest.raises(UserError, match=r"no valid_unseen games; it has train \(1\), valid_seen \(1\): set heldout = 'valid_seen'"):
        Alfworld(path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pddl_problem": None}, "it has no 'pddl_problem'"),
        ({"pddl_problem": kitchen()[:2000]}, "cut off"),
        ({"pddl_problem": kitchen().replace("alfred", "logistics")}, "not of the domain 'alfred'"),
        ({"pddl_problem": kitchen().replace("(receptacleType ?r CabinetType) ", "")}, "none of ALFWorld's six"),
        ({"grammar": "You are in a room."}, "games of this version are not supported"),
        ({"grammar": 3}, "expected string"),
    ],
)
def test_a_broken_game_is_named_with_its_fault(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    path = official_game(tmp_path / "train" / "kitchen" / "trial_0", **changes)
    with pytest.raises(UserError) as caught:
        load(str(tmp_path))
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"not json", b"[1, 2]", b"\xff\xfe\x00", b'{"pddl_problem": '])
def test_a_file_that_is_no_game(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "game.tw-pddl"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"game\.tw-pddl is not an ALFWorld game: "):
        load(str(path))


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("{", "line 2 is not an ALFWorld game"),
        ({"id": "x"}, "it has no 'split'"),
        (row("test"), "its split is 'test'; there are train, valid_seen, valid_unseen"),
        (row(pddl_problem="(define)"), "line 2 is not"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, broken: object, words: str) -> None:
    path = lines(tmp_path / "games.jsonl", row(), broken)
    with pytest.raises(UserError) as caught:
        load(str(path))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("fact", "broken", "words"),
    [
        ("(inReceptacle Mug_bar_1 ", "(inReceptacle Mug ", r"a fact of its PDDL problem is broken \('mug'\)"),
        ("(atLocation agent1 loc_bar_0)", "", "where the agent begins"),
    ],
)
def test_broken_facts_are_told_when_the_game_begins(tmp_path: Path, fact: str, broken: str, words: str) -> None:
    suite = Alfworld(str(lines(tmp_path / "games.jsonl", row(pddl_problem=kitchen().replace(fact, broken)))))
    with pytest.raises(UserError, match=rf"games\.jsonl, line 1 is not an ALFWorld game: .*{words}"):
        suite.make_env().reset(suite.tasks("train")[0], 0)


def test_a_receptacle_that_is_nowhere_cannot_be_reached(tmp_path: Path) -> None:
    text = kitchen().replace("(receptacleAtLocation Fridge_bar_1 loc_bar_4)", "")
    suite = Alfworld(str(lines(tmp_path / "games.jsonl", row(pddl_problem=text))))
    env = suite.make_env()
    assert "fridge" not in env.reset(suite.tasks("train")[0], 0)[0]
    assert env.step("go to fridge 1")[4]["invalid"]


def test_places_that_hold_no_games(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no .*nowhere"):
        Alfworld(str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="no ALFWorld games"):
        Alfworld(str(tmp_path))
    (tmp_path / "traj_data.json").write_text("{}")
    with pytest.raises(UserError, match=r"only ALFRED trajectories .*alfworld-download"):
        Alfworld(str(tmp_path))
    (tmp_path / "games.zip").write_text("")
    with pytest.raises(UserError, match="neither a folder, nor"):
        Alfworld(str(tmp_path / "games.zip"))
    (tmp_path / "games.jsonl.xz").write_bytes(b"not compressed")
    with pytest.raises(UserError, match=r"games\.jsonl\.xz is not an ALFWorld game"):
        Alfworld(str(tmp_path / "games.jsonl.xz"))
    with pytest.raises(UserError, match="holds no game that can be played"):
        Alfworld(str(lines(tmp_path / "empty.jsonl")))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = official_game(tmp_path)
    path.chmod(0)
    with pytest.raises(UserError, match="Permission denied"):
        load(str(path))
