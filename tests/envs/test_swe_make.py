"""Making SWE tasks: mutations, issues, and the whole command on a tiny package."""

import ast
from pathlib import Path

import pytest
from helpers.swe import PACKAGE, PATIENT, install_pytest, needs_sandbox, write

from complementary_rl.envs.swe import make
from complementary_rl.envs.swe.grading import TestResult, solved
from complementary_rl.envs.swe.issues import write_issue
from complementary_rl.envs.swe.mutations import mutations, unified
from complementary_rl.envs.swe.recipe import RECIPE, Ingredient, drawn_recipe, read_recipe
from complementary_rl.envs.swe.sandbox import Limits
from complementary_rl.envs.swe.tasks import change_of, lay_out, load
from complementary_rl.errors import UserError


@pytest.mark.parametrize(
    ("body", "broken"),
    [
        ("return a < b", {"return a <= b"}),
        ("return a not in b", {"return a in b"}),
        ("return a is None", {"return a is not None"}),
        ("return (a)  +  (b)", {"return (a)  -  (b)"}),
        ("return a and b", {"return a or b"}),
        ("return not a", {"return a"}),
        ("return True", {"return False"}),
        ("return 7", {"return 8"}),
        ("return f(a, b)", {"return f(b, a)"}),
        ("return a.startswith(b)", {"return a.endswith(b)"}),
        ("return 'ä', a  # größer\n    return a == b", {"return 'ä', a  # größer\n    return a != b"}),
        ("if a:\n        return b", {"if not a:\n        return b"}),
        ("'''1 < 2'''", set()),
        ("raise ValueError('more than %d' % 3)", set()),
        ("x: Literal[3] = a", set()),
        ("return 'a' 'b' + c", set()),
        ("return (a < # b < c\n        b)", set()),
    ],
)
def test_mutations_change_a_few_characters(body: str, broken: set[str]) -> None:
    frame = "LIMIT = 3\n\n\n@lru_cache(4)\ndef f(a, b=5):\n    {}\n"
    source = frame.format(body)
    assert {one.apply(source) for one in mutations(source)} == {frame.format(one) for one in broken}


def test_every_mutation_is_another_program() -> None:
    source = Path(make.__file__).read_text()
    found = [one.apply(source) for one in mutations(source)]
    assert len(found) == len(set(found)) > 20
    assert all(ast.dump(ast.parse(one)) != ast.dump(ast.parse(source)) for one in found)


def test_a_diff_has_as_much_around_it_as_makes_its_place_plain() -> None:
    block = "def f(a):\n    x = 1\n    y = 2\n    z = 3\n    return a < 3\n\n\n"
    before = block * 3
    after = block + block.replace("<", "<=") + block
    change = change_of(unified("a.py", before, after))
    assert after.count(change.after) == 1
    assert after.replace(change.after, change.before) == before
    # Undone twice over, the same lines elsewhere would be changed.
    twice = unified("a.py", after, block.replace("<", "<=") * 2 + block)
    assert (block.replace("<", "<=") * 2 + block).count(change_of(twice).after) == 1


def test_an_issue_tells_what_tests_see_and_nothing_of_the_source() -> None:
    detail = (
        "tests/test_words.py:9: in test_plural\n    assert plural('cat', 2) == 'cats'\nsrc/words.py:77: in plural\n    return word < 3\n"
        "           ^^^^^^^^\nE   TypeError: no order"
    )
    failures = [TestResult(f"tests/test_words.py::test_plural[a::b{n}]", False, detail) for n in range(9)]
    issue = write_issue("words-1.0", [*failures, TestResult("tests/test_words.py::test_b", False, "E   assert 1 == 2")])
    assert issue.splitlines()[0] == "test_plural and 1 more fail: TypeError: no order"
    assert "assert plural('cat', 2) == 'cats'\n    TypeError: no order" in issue
    assert "test_b:\n    assert 1 == 2" in issue
    assert "src/words.py" not in issue
    assert "word < 3" not in issue
    assert issue.count("cats") == 1


def test_an_issue_is_the_same_whenever_it_is_written() -> None:
    issues = {
        write_issue("a-1", [TestResult("tests/test_a.py::test_a", False, f"E   assert <A object at {where}> == 0xff")])
        for where in ("0x7fd42dd63010", "0x7fa6b7f25290")
    }
    assert len(issues) == 1
    assert "<A object at 0x…> == 0xff" in issues.pop()


@needs_sandbox
def test_tasks_of_a_tiny_package_are_noticed_by_tests_and_mended_by_their_diff(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    write(tmp_path / "tiny", PACKAGE)
    data = tmp_path / "data"
    install_pytest(data / "tools")
    repository = make.fetch(str(tmp_path / "tiny"), data)
    package = make.prepare(repository, data, Limits(seconds=PATIENT))
    assert (package.repository, package.source, len(package.passing)) == ("tiny", ("tiny",), 9)
    made = list(make.bugs(package, "train", 0, 1))
    assert made
    assert "tests/test_plural.py::TestPlural::test_inherited" in package.passing
    for task in made:
        make.write_task(task, data)
        assert 0 < len(task.failing) <= 2
        assert len(task.failing) + len(task.passing) == 9
        assert "tiny/words.py" not in task.issue
    assert load(str(data)) == sorted(made, key=lambda task: task.id)
    lay_out(made[0], data, tmp_path / "broken", broken=True)
    assert not solved(made[0], data, tmp_path / "broken", Limits(seconds=PATIENT))
    lay_out(made[0], data, tmp_path / "whole", broken=False)
    assert solved(made[0], data, tmp_path / "whole", Limits(seconds=PATIENT))


def test_the_recipe_makes_fifty_tasks_and_holds_repositories_out() -> None:
    recipe = read_recipe(RECIPE)
    assert sum(one.tasks for one in recipe.packages) >= 50
    assert {one.split for one in recipe.packages} == {"train", "heldout"}
    assert all(one.version for one in recipe.packages)
    assert recipe.packages[0].requirement == "inflection==0.5.1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seed = 0", "packages: Field required"),
        ("seed = 0\npackages = []", "packages: "),
        ("seed = 0\npackages = [{name = 'a', tasks = 0, split = 'train'}]", r"packages\.0\.tasks: "),
        ("seed = 0\npackages = [{name = 'a', tasks = 1, split = 'test'}]", r"packages\.0\.split: "),
        ("seed = 0\npackages = [{name = 'a', task = 1, split = 'train'}]", r"packages\.0\.tasks: "),
        (
            "seed = 0\npackages = [{name = 'a', tasks = 1, split = 'train'}, {name = 'a', tasks = 2, split = 'heldout'}]",
            "a more than once",
        ),
        ("seed", "cannot be read"),
    ],
)
def test_a_recipe_with_a_fault(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "recipe.toml").write_text(text)
    with pytest.raises(UserError, match=words):
        read_recipe(tmp_path / "recipe.toml")


def test_packages_without_a_recipe_are_split_by_seed() -> None:
    recipe = drawn_recipe(["a", "b==1", "c"], 4, 0.34, 0)
    assert [one.requirement for one in recipe.packages] == ["a", "b==1", "c"]
    assert sorted(one.split for one in recipe.packages) == ["heldout", "train", "train"]
    assert recipe == drawn_recipe(["a", "b==1", "c"], 4, 0.34, 0)


@needs_sandbox
def test_a_package_that_cannot_be_used_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails_for_bad(one: Ingredient, *_: object) -> str:
        if one.name == "bad":
            raise UserError("swe: bad is bad")
        return f"made of {one.name}"

    monkeypatch.setattr(make, "make_tasks", fails_for_bad)
    monkeypatch.setattr(make, "install_tools", lambda _: None)
    with pytest.raises(SystemExit) as ended:
        make.main(tmp_path / "data", ["bad", "good"], tasks=1)
    assert ended.value.code == 1
    assert capsys.readouterr() == ("made of good\n", "error: swe: bad is bad\n")


@needs_sandbox
def test_a_package_without_tests_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "bare", {"bare.py": "x = 1\n"})
    (tmp_path / "data").mkdir()
    with pytest.raises(UserError, match=r"no test of bare passes here \(0 test files\)"):
        make.prepare(make.fetch(str(tmp_path / "bare"), tmp_path / "data"), tmp_path / "data", Limits())
