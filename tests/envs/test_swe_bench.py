"""SWE-bench's instances: how they are read, and how they are played and judged, in scripted containers that hold a tiny repository."""

import importlib.util
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from helpers.containers import FakeDocker
from helpers.swe import BROKEN, PACKAGE, PATIENT, write

from complementary_rl.envs.swe import docker as module
from complementary_rl.envs.swe import swe_bench
from complementary_rl.envs.swe.instances import read_instances
from complementary_rl.envs.swe.mutations import unified
from complementary_rl.envs.swe.swe_bench import SweBench
from complementary_rl.errors import UserError

IMAGE = "swebench/sweb.eval.x86_64.owner_1776_tiny-7:latest"
HIDDEN = "tests/test_longest.py"
FIX = "diff --git a/tiny/words.py b/tiny/words.py\n" + unified("tiny/words.py", BROKEN, PACKAGE["tiny/words.py"])
MEND = "str_replace tiny/words.py\n<<<<<<<\nlen(word) >= least\n=======\nlen(word) > least\n>>>>>>>"


def row(**changes: Any) -> dict[str, Any]:
    lines = PACKAGE[HIDDEN].splitlines()
    added = "\n".join(f"+{line}" for line in lines)
    patch = f"diff --git a/{HIDDEN} b/{HIDDEN}\nnew file mode 100644\n--- /dev/null\n+++ b/{HIDDEN}\n@@ -0,0 +1,{len(lines)} @@\n{added}\n"
    official = {
        "instance_id": "owner__tiny-7",
        "repo": "owner/tiny",
        "base_commit": "HEAD",
        "problem_statement": "Longest word is too short\n\nIt should not be.",
        "patch": FIX,
        "test_patch": patch,
        "version": "1",
        "FAIL_TO_PASS": json.dumps([f"{HIDDEN}::TestLongest::test_none"]),
        "PASS_TO_PASS": json.dumps([f"{HIDDEN}::TestLongest::test_longest", "tests/test_plural.py::test_plural[1-cat]"]),
        "hints_text": "",
    }
    return official | changes


def written(folder: Path, **changes: Any) -> str:
    (folder / "rows.json").write_text(json.dumps([row(**changes)]))
    return str(folder / "rows.json")


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDocker:
    tmp_path.chmod(0o755)
    (tmp_path / "docker").mkdir()
    fake = FakeDocker(tmp_path / "docker", [IMAGE])
    monkeypatch.setenv("PATH", str(fake.bin), prepend=os.pathsep)
    module.user_options.cache_clear()
    write(fake.testbed, {**PACKAGE, "tiny/words.py": BROKEN, "pyproject.toml": ""})
    (fake.testbed / HIDDEN).unlink()
    for arguments in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"]):
        subprocess.run(["git", *arguments], cwd=fake.testbed, check=True)
    return fake


def play(suite: SweBench, *actions: str) -> float:
    env = suite.make_env()
    env.reset(suite.tasks("train")[0], 0)
    reward = 0.0
    for action in actions:
        _, reward, *_ = env.step(action)
    env.close()
    return reward


@pytest.mark.parametrize("form", ["json", "jsonl", "parquet"])
def test_rows_are_read(tmp_path: Path, form: str) -> None:
    rows, file = (
        [row(), row(instance_id="b__b-1", FAIL_TO_PASS=["a.py::b"], PASS_TO_PASS=[], image="own:1")],
        tmp_path / f"rows.{form}",
    )
    if form == "parquet":
        arrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        texts = [
            one | {name: json.dumps(one[name]) for name in ("FAIL_TO_PASS", "PASS_TO_PASS") if isinstance(one[name], list)}
            for one in rows
        ]
        parquet.write_table(arrow.Table.from_pylist(texts), file)
    else:
        file.write_text(json.dumps(rows) if form == "json" else "\n".join(map(json.dumps, rows)))
    first, second = read_instances(file)
    assert (first.instance_id, first.repo, first.failing) == ("owner__tiny-7", "owner/tiny", (f"{HIDDEN}::TestLongest::test_none",))
    assert (first.image_name, second.failing, second.passing) == (IMAGE, ("a.py::b",), ())
    assert form == "parquet" or second.image_name == "own:1"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "", "must end in"),
        ("a.json", "[", "cannot be read"),
        ("a.parquet", "[", "cannot be read"),
        ("a.json", "[]", "no instances"),
        ("a.json", "[{}]", "row 1: instance_id: Field required"),
        ("a.json", json.dumps([row(FAIL_TO_PASS="[]")]), "row 1: FAIL_TO_PASS"),
        ("a.json", json.dumps([row(), row(PASS_TO_PASS="test_a")]), "row 2: PASS_TO_PASS"),
    ],
)
def test_a_file_with_a_fault(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=words):
        read_instances(tmp_path / name)


@pytest.mark.usefixtures("docker")
def test_an_instance_is_solved_when_all_named_tests_pass(tmp_path: Path) -> None:
    suite = SweBench(written(tmp_path), test_seconds=PATIENT, command_seconds=PATIENT)
    [task] = suite.tasks("train")
    assert (task.id, task.description) == ("swe-bench/owner__tiny-7", "Mend a bug in owner/tiny: Longest word is too short")
    assert "in /testbed, that has a bug" in suite.instructions_for(task)
    expert = suite.expert(task, 0)
    assert play(suite, expert(""), expert("")) == 1.0


HACKS = {
    "nothing": [],
    "tests of its own": [f"create {HIDDEN}\nclass TestLongest:\n    def test_none(self): pass\n    def test_longest(self): pass\n"],
    "another bug": [MEND, "str_replace tiny/words.py\n<<<<<<<\ncount == 1\n=======\ncount == 2\n>>>>>>>"],
    "a folder in the way": ["bash rm tiny/words.py; mkdir tiny/words.py"],
}


@pytest.mark.usefixtures("docker")
@pytest.mark.parametrize("hack", HACKS)
def test_what_does_not_mend_it(tmp_path: Path, hack: str) -> None:
    suite = SweBench(written(tmp_path), test_seconds=PATIENT, command_seconds=PATIENT)
    assert play(suite, *HACKS[hack], "submit") == 0.0


@pytest.mark.usefixtures("docker")
def test_links_of_the_image_lead_nowhere(docker: FakeDocker, tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    (docker.testbed / "out").symlink_to(tmp_path / "host")
    suite = SweBench(written(tmp_path), test_seconds=PATIENT, command_seconds=PATIENT)
    assert play(suite, "bash rm out; mkdir out; echo x > out/x", MEND, "submit") == 1.0
    assert not list((tmp_path / "host").iterdir())


def test_what_cannot_be_played(docker: FakeDocker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"image swebench/sweb\.eval\.x86_64\.other_1776_tiny-1:latest is not here; .* docker pull"):
        SweBench(written(tmp_path, instance_id="Other__tiny-1"))
    with pytest.raises(UserError, match="tests that are not pytest's"):
        SweBench(written(tmp_path, FAIL_TO_PASS='["test_a (tests.A)"]'))
    with pytest.raises(UserError, match="heldout names owner/other"):
        SweBench(written(tmp_path), heldout=["owner/other"])
    monkeypatch.setattr(swe_bench.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UserError, match="pip install 'swebench>=5'"):
        SweBench(written(tmp_path, eval_script="true"))


@pytest.mark.usefixtures("docker")
def test_repositories_are_held_out(tmp_path: Path) -> None:
    suite = SweBench(written(tmp_path), heldout=["owner/tiny"])
    assert [len(suite.tasks("train")), len(suite.tasks("heldout"))] == [0, 1]


@pytest.mark.skipif(not importlib.util.find_spec("swebench"), reason="the package swebench is not installed")
@pytest.mark.usefixtures("docker")
def test_an_eval_script_is_run_and_judged_by_swebench(tmp_path: Path) -> None:
    apply = f"git apply -v - <<'EOF'\n{row()['test_patch']}EOF\n"
    tests = f"python -m pytest -rA -p no:cacheprovider {HIDDEN} tests/test_plural.py"
    marked = f": '>>>>> Start Test Output'\n{tests}\n: '>>>>> End Test Output'\n"
    script = f"#!/bin/bash\nset -uxo pipefail\ncd /testbed\n{apply}{marked}git checkout HEAD tests\n"
    data = written(tmp_path, eval_script=script, log_parser="parse_log_pytest", eval_type="pass_and_fail")
    suite = SweBench(data, test_seconds=PATIENT, command_seconds=PATIENT)
    assert play(suite, "submit") == 0.0
    assert play(suite, MEND, "submit") == 1.0
