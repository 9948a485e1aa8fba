"""The SWE suite on a tiny package: tools, editor, what is hidden, and how what was done is judged."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.swe import BROKEN, PACKAGE, PATIENT, needs_sandbox, tiny_data, write

from complementary_rl.envs.checker import check_env
from complementary_rl.envs.registry import make_suite
from complementary_rl.envs.swe.episode import RepositoryEnv
from complementary_rl.envs.swe.grading import solved
from complementary_rl.envs.swe.sandbox import Limits
from complementary_rl.envs.swe.suite import Swe
from complementary_rl.envs.swe.tasks import change_of, load
from complementary_rl.envs.swe.tools import Call, NotACall, parse
from complementary_rl.errors import UserError

MEND = "str_replace tiny/words.py\n<<<<<<<\nlen(word) >= least\n=======\nlen(word) > least\n>>>>>>>"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_data(tmp_path_factory.mktemp("swe"))


@pytest.fixture
def env(data: Path) -> Iterator[RepositoryEnv]:
    suite = Swe(str(data), test_seconds=PATIENT, command_seconds=PATIENT, max_turns=8)
    one = suite.make_env()
    one.reset(suite.tasks("train")[0], 0)
    yield one
    one.close()


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("bash ls -la", Call("bash", "ls -la")),
        ("bash\ncd /tmp\n  ls", Call("bash", "cd /tmp\n  ls")),
        ("```\nbash ls\n```", Call("bash", "ls")),
        ("submit", Call("submit")),
        ("view a.py", Call("edit", arguments={"tool": "view", "path": "a.py", "first": 1, "last": 0})),
        ("view a.py 3 9", Call("edit", arguments={"tool": "view", "path": "a.py", "first": 3, "last": 9})),
        ("create a.py\n  x\n\ny", Call("edit", arguments={"tool": "create", "path": "a.py", "text": "  x\n\ny\n"})),
        ("insert a.py 0\nx", Call("edit", arguments={"tool": "insert", "path": "a.py", "line": 0, "text": "x\n"})),
        (
            "str_replace a.py\n<<<<<<<\n  a\nb\n=======\n>>>>>>>",
            Call("edit", arguments={"tool": "str_replace", "path": "a.py", "old": "  a\nb", "new": ""}),
        ),
    ],
)
def test_calls(text: str, call: Call) -> None:
    assert parse(text) == call


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no tool ''"),
        ("I will look at the code first.", "no tool 'I'"),
        ("bash", "bash takes a command"),
        ("view", "view takes a path"),
        ("view a.py 3", "view takes a path"),
        ("view a.py three 4", "view takes a path"),
        ("insert a.py -1\nx", "insert takes a path and a line number"),
        ("str_replace a.py\nold\nnew", "str_replace takes a path"),
        ("str_replace a.py\n<<<<<<<\n=======\nx\n>>>>>>>", "str_replace takes a path"),
        ("submit now", "submit takes nothing else"),
        ("bash echo \0", "NUL"),
        ("bash " + "x" * 60_000, "longer than"),
    ],
)
def test_what_is_no_call_says_why(text: str, words: str) -> None:
    with pytest.raises(NotACall, match=words):
        parse(text)


@needs_sandbox
def test_the_checker_is_content(data: Path) -> None:
    report = check_env(
        make_suite("swe", data=str(data), max_turns=3, test_seconds=PATIENT, command_seconds=PATIENT), episodes=2, timeout=PATIENT
    )
    assert report.ok, str(report)


@needs_sandbox
def test_what_the_actor_sees(data: Path) -> None:
    suite = Swe(str(data), test_seconds=PATIENT, command_seconds=PATIENT)
    task = suite.tasks("train")[0]
    assert task.description == "Mend a bug in the Python package tiny: test_none fails (one)"
    env = suite.make_env()
    opening, info = env.reset(task, 0)
    assert opening.startswith("test_none fails (one)\n\nIt returns a word.\n\n/repo holds:\n")
    assert "tiny/words.py" in opening
    assert "tests/test_plural.py" in opening
    assert "test_longest.py" not in opening
    assert env.step("bash cat tiny/words.py")[0] == BROKEN.rstrip()
    assert env.step("bash exit 3")[0] == "(exit status 3)"
    assert info["actions"]
    env.close()


@needs_sandbox
def test_the_expert_is_right_and_doing_nothing_is_not(data: Path) -> None:
    suite = Swe(str(data), test_seconds=PATIENT, command_seconds=PATIENT)
    env = suite.make_env()
    for split in ("train", "heldout"):
        task = suite.tasks(split)[0]
        observation, _ = env.reset(task, 0)
        expert = suite.expert(task, 0)
        observation, reward, terminated, _, info = env.step(expert(observation))
        assert (reward, terminated, info["success"]) == (0.0, False, False)
        observation, reward, terminated, truncated, info = env.step(expert(observation))
        assert (observation, reward, terminated, truncated) == ("The hidden tests pass.", 1.0, True, False)
        assert info["success"] is True
        env.reset(task, 0)
        observation, reward, terminated, _, info = env.step("submit")
        assert (observation, reward, terminated, info["success"]) == ("Hidden tests fail.", 0.0, True, False)
    env.close()


@needs_sandbox
def test_what_was_not_submitted_is_judged_at_the_last_turn(data: Path) -> None:
    suite = Swe(str(data), test_seconds=PATIENT, command_seconds=PATIENT, max_turns=2)
    env = suite.make_env()
    env.reset(suite.tasks("train")[0], 0)
    assert env.step(MEND)[1:4] == (0.0, False, False)
    assert env.step("what now?")[1:4] == (1.0, False, True)
    env.close()


@needs_sandbox
def test_the_editor(env: RepositoryEnv) -> None:
    def do(action: str) -> str:
        return env.step(action)[0]

    assert (
        do("view tiny/words.py 4 6")
        == "     4  def plural(word, count):\n     5      # One is no plural.\n     6      if count == 1:"
    )
    assert do("create /tmp/new/a.txt\none\ntwo") == "Wrote /tmp/new/a.txt (2 lines)."
    assert do("insert /tmp/new/a.txt 1\nand a half").endswith("     1  one\n     2  and a half\n     3  two")
    assert do("str_replace /tmp/new/a.txt\n<<<<<<<\none\n=======\nuno\n>>>>>>>").endswith(
        "     1  uno\n     2  and a half\n     3  two"
    )
    assert "is 2 times in" in do("str_replace tiny/words.py\n<<<<<<<\n    return word\n=======\nx\n>>>>>>>")
    assert "is 0 times in" in do("str_replace tiny/words.py\n<<<<<<<\nnowhere\n=======\nx\n>>>>>>>")
    assert do("view nowhere.py") == "There is no nowhere.py."


@needs_sandbox
def test_the_editor_reaches_no_further_than_a_command(env: RepositoryEnv, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the secret")
    env.step(f"bash ln -s {secret} link; ln -s /etc folder; mkfifo pipe; ln -s / root")
    for path in (secret, "link", "folder/shadow", "../../../../../../etc/shadow", "root/etc/passwd"):
        assert "There is no" in env.step(f"view {path}")[0]
    assert "is no file" in env.step("view pipe")[0]
    assert "the secret" not in env.step(f"create link\nchanged\n{secret}")[0]
    assert secret.read_text() == "the secret"


@needs_sandbox
def test_observations_are_bounded(data: Path) -> None:
    suite = Swe(str(data), test_seconds=PATIENT, command_seconds=PATIENT, observation_chars=300)
    env = suite.make_env()
    env.reset(suite.tasks("train")[0], 0)
    shown = env.step("bash seq 100000")[0]
    assert len(shown) <= 300
    assert shown.startswith("1\n2\n")
    assert "characters left out" in shown
    assert shown.endswith("100000")
    env.close()


HACKS: dict[str, dict[str, str]] = {
    "a conftest that lets all pass": {
        "conftest.py": "import pytest\ndef pytest_collection_modifyitems(items):\n    items.clear()\n"
    },
    "tests that pass": {"tests/test_longest.py": "def test_none(): pass\n"},
    "settings": {"pytest.ini": "[pytest]\naddopts = --co\n", "setup.cfg": "[tool:pytest]\n"},
    "modules in the way": {"pytest.py": "", "sitecustomize.py": "import os; os._exit(0)\n", "tests/__init__.py": ""},
    "leaving early": {"tiny/words.py": "import os\nos._exit(0)\n"},
    "a bug mended and another made": {"tiny/words.py": PACKAGE["tiny/words.py"].replace("count == 1", "count <= 1")},
    "no source at all": {"tiny/words.py": ""},
}


@needs_sandbox
@pytest.mark.parametrize("hack", HACKS)
def test_only_sources_count(data: Path, tmp_path: Path, hack: str) -> None:
    write(tmp_path, {**PACKAGE, "tiny/words.py": BROKEN})
    write(tmp_path, HACKS[hack])
    assert not solved(load(str(data))[0], data, tmp_path, Limits(seconds=PATIENT))


@needs_sandbox
def test_what_is_mended_counts_whatever_else_was_done(data: Path, tmp_path: Path) -> None:
    write(tmp_path, {**PACKAGE, "tests/test_longest.py": "assert False", "conftest.py": "assert False", "tiny/more.py": "x = 1\n"})
    (tmp_path / "tiny" / "test_x.py").write_text("assert False")
    assert solved(load(str(data))[0], data, tmp_path, Limits(seconds=PATIENT))


@needs_sandbox
def test_links_bring_nothing_of_the_host_along(data: Path, tmp_path: Path) -> None:
    write(tmp_path / "host", PACKAGE)
    left = tmp_path / "left"
    left.mkdir()
    (left / "tiny").symlink_to(tmp_path / "host" / "tiny")
    assert not solved(load(str(data))[0], data, left, Limits(seconds=PATIENT))
    (left / "tiny").unlink()
    (left / "tiny").mkdir()
    for name in ("__init__.py", "words.py"):
        (left / "tiny" / name).symlink_to(tmp_path / "host" / "tiny" / name)
    assert not solved(load(str(data))[0], data, left, Limits(seconds=PATIENT))


@needs_sandbox
@pytest.mark.parametrize(
    ("option", "value"), [("max_turns", 0), ("command_seconds", 0), ("test_seconds", 0), ("observation_chars", 10)]
)
def test_options_out_of_range(data: Path, option: str, value: int) -> None:
    with pytest.raises(UserError, match=f"{option} is {value}"):
        make_suite("swe", data=str(data), **{option: value})


def test_no_tasks(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no tasks in .*swe\.make"):
        load(str(tmp_path))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"split": "test"}, "its split is 'test'"),
        ({"failing": []}, "no failing tests"),
        ({"diff": "nonsense"}, "not a unified diff"),
        ({"repository": "elsewhere"}, "No such file"),
        ({"source": None}, "its source is a NoneType, not a list"),
        ({"diff": 3}, "its diff is a int, not a str"),
        ({"hidden": ["../../elsewhere"]}, "leads out of the repository"),
        ({"repository": "/etc"}, "leads out of the repository"),
    ],
)
def test_a_broken_task_is_named_with_its_fault(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    file = tiny_data(tmp_path) / "tasks" / "one.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(UserError, match=words) as caught:
        load(str(tmp_path))
    assert "one.json" in str(caught.value)


def test_a_diff_that_does_not_fit(tmp_path: Path) -> None:
    (tiny_data(tmp_path) / "repositories" / "tiny" / "tiny" / "words.py").write_text("other = 1\n")
    with pytest.raises(UserError, match=r"does not fit tiny/words\.py"):
        load(str(tmp_path))


def test_a_change_is_read_from_its_diff(tmp_path: Path) -> None:
    change = change_of(load(str(tiny_data(tmp_path)))[0].diff)
    assert PACKAGE["tiny/words.py"].replace(change.before, change.after) == BROKEN
