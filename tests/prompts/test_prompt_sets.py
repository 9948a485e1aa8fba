"""Loading a set, and what a user is told when their own is wrong."""

import re
import shutil
from pathlib import Path

import pytest

import complementary_rl.prompts as prompts_package
from complementary_rl.errors import UserError
from complementary_rl.prompts import VARIABLES, PromptSet, shipped_sets

REPLY = {"answer": "a", "observation": "o"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's own set: a copy of `compact`."""
    return Path(shutil.copytree(Path(prompts_package.__file__).parent / "compact", tmp_path / "mine"))


def test_shipped_sets_are_found_by_name() -> None:
    assert shipped_sets() == ["compact", "instruct"]


def test_a_folder_of_ones_own_is_loaded_by_path(folder: Path) -> None:
    (folder / "tool_reply.j2").write_text("{% if answer %}\nthey say {{ answer }}\n{% endif %}\n")
    for path in (folder, str(folder)):
        assert PromptSet.load(path).render("tool_reply", **REPLY) == "they say a\n"


def test_a_set_may_split_its_templates_over_files(folder: Path) -> None:
    (folder / "shared.txt").write_text("now: {{ observation }}")
    (folder / "tool_reply.j2").write_text("{{ answer }} {% include 'shared.txt' %}")
    assert PromptSet.load(folder).render("tool_reply", **REPLY) == "a now: o"


def test_an_unknown_name_is_refused_with_the_nearest_set() -> None:
    with pytest.raises(UserError, match=r"'instuct'.*compact, instruct.*did you mean 'instruct'"):
        PromptSet.load("instuct")


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / "merge.j2").unlink()
    (folder / "gate.j2").unlink()
    with pytest.raises(UserError, match=r"mine lacks gate\.j2, merge\.j2.*start from a copy"):
        PromptSet.load(folder)


def test_a_misspelt_variable_is_found_when_loading(folder: Path) -> None:
    (folder / "answer.j2").write_text("{{ qestion }}")
    with pytest.raises(UserError, match=r"answer\.j2 uses 'qestion'.*did you mean 'question'"):
        PromptSet.load(folder)


def test_a_syntax_error_is_reported_with_its_line(folder: Path) -> None:
    (folder / "gate.j2").write_text("fine\n{% if rate %}\nnever closed")
    with pytest.raises(UserError, match=r"gate\.j2:3: .*endif"):
        PromptSet.load(folder)


def test_a_file_that_is_not_text_is_refused(folder: Path) -> None:
    (folder / "gate.j2").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"gate\.j2 cannot be read.*UTF-8"):
        PromptSet.load(folder)


def test_a_variable_that_is_not_passed_is_named_with_file_and_line() -> None:
    with pytest.raises(UserError, match=r"tool_reply\.j2:2: 'observation' is undefined"):
        PromptSet.load("compact").render("tool_reply", answer="a")


def test_a_template_that_fails_is_named_with_file_and_line(folder: Path) -> None:
    (folder / "tool_reply.j2").write_text("first\n{{ answer + 1 }}")
    with pytest.raises(UserError, match=r"tool_reply\.j2:2 failed: TypeError"):
        PromptSet.load(folder).render("tool_reply", **REPLY)


@pytest.mark.parametrize("attack", ["{{ answer.__class__.__mro__ }}", "{{ ''.__class__ }}", "{{ ''.format.__globals__ }}"])
def test_a_template_cannot_reach_into_python(folder: Path, attack: str) -> None:
    (folder / "tool_reply.j2").write_text(attack)
    with pytest.raises(UserError, match="tool_reply"):
        PromptSet.load(folder).render("tool_reply", **REPLY)


def test_a_template_cannot_change_what_it_is_given(folder: Path) -> None:
    (folder / "answer.j2").write_text("{{ entries.append('more') }}")
    entries = ["one"]
    with pytest.raises(UserError, match="SecurityError"):
        PromptSet.load(folder).render("answer", entries=entries)
    assert entries == ["one"]


def test_a_template_cannot_read_files_outside_its_folder(folder: Path) -> None:
    (folder.parent / "secret.txt").write_text("secret")
    (folder / "tool_reply.j2").write_text("{% include '../secret.txt' %}")
    with pytest.raises(UserError, match="TemplateNotFound"):
        PromptSet.load(folder).render("tool_reply", **REPLY)


def test_the_docs_list_each_prompt_with_the_variables_it_has() -> None:
    page = (Path(__file__).parents[2] / "docs" / "prompts.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)\.j2` \|.*\| ([^|]+) \|$", page, re.MULTILINE)
    assert {name: frozenset(re.findall(r"`(\w+)`", variables)) for name, variables in rows} == VARIABLES
