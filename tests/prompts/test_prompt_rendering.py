"""What the shipped sets render, to the letter. `CRL_UPDATE_GOLDEN=1 pytest tests/prompts` rewrites `instruct`'s golden files."""

import os
from pathlib import Path
from typing import Any

import pytest

from complementary_rl.prompts import PromptSet
from complementary_rl.types import Entry, EntryStats

GOLDEN = Path(__file__).parent / "golden"

TASK = {
    "instructions": "You walk in a dark room.\nActions: north, east, south, west.",
    "description": "Find the exit of the Amber Gallery.",
}
NOTES = ["the exit is in the east", "do not trust the map"]
TURNS = [("at 3 4", "east"), ("at 4 4, exit north-east", "<ask>where now?</ask>")]
ENTRIES = [
    Entry(3, "the exit is in the east", "Find the exit.", "s", 1, stats=EntryStats(retrieved=9, shown=4, successes=3, failures=1)),
    Entry(9, "the exit is not in the west", "Find it.", "s", 2),
]

GUIDED: dict[str, Any] = {**TASK, "experience": NOTES, "tool": True, "tool_call": False, "observation": "at 3 4"}
FREE: dict[str, Any] = {**TASK, "instructions": "", "experience": [], "tool": False, "tool_call": False, "observation": "at 3 4"}
WON: dict[str, Any] = {**TASK, "entries": [NOTES[0]], "turns": TURNS, "final_observation": "at 5 3, out"}
WON |= {"success": True, "reward": 1.0, "max_operations": 3}
LOST: dict[str, Any] = {**WON, "instructions": "", "entries": [], "success": False, "reward": 0.25, "max_operations": 1}
UNKNOWN: dict[str, Any] = {name: value for name, value in LOST.items() if name not in ("success", "reward")}
UNKNOWN |= {"turns": [("", "look()"), *TURNS[:1]], "final_observation": ""}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "actor-guided": ("actor", GUIDED),
    "actor-free": ("actor", FREE),
    "tool_reply": ("tool_reply", {"answer": "go east", "observation": "at 3 4"}),
    "gate": ("gate", {**TASK, "experience": NOTES[:1], "rate": 1 / 3, "observation": "at 3 4"}),
    "distill-won": ("distill", WON),
    "distill-lost": ("distill", LOST),
    "distill-unknown": ("distill", UNKNOWN),
    "merge": ("merge", {"entries": ENTRIES}),
    "answer": ("answer", {**TASK, "entries": NOTES, "observation": "at 3 4", "question": "where?"}),
    "answer-without-notes": ("answer", {**TASK, "instructions": "", "entries": [], "observation": "at 3 4", "question": "where?"}),
}

COMPACT = {
    "actor-guided": (
        "Find the exit of the Amber Gallery.\nhint: the exit is in the east\nhint: do not trust the map\nask: allowed\nat 3 4"
    ),
    "actor-free": "Find the exit of the Amber Gallery.\nat 3 4",
    "tool_reply": "answer: go east\nat 3 4",
    "gate": "Find the exit of the Amber Gallery.\nhint: the exit is in the east\nsuccess rate 0.33\naccept, refine or reject?",
    "distill-won": (
        "Find the exit of the Amber Gallery.\nshown 1: the exit is in the east\nat 3 4 east\n"
        "at 4 4, exit north-east <ask>where now?</ask>\nat 5 3, out\nsuccess"
    ),
    "distill-lost": (
        "Find the exit of the Amber Gallery.\nat 3 4 east\nat 4 4, exit north-east <ask>where now?</ask>\nat 5 3, out\nfailure"
    ),
    "distill-unknown": "Find the exit of the Amber Gallery.\nlook()\nat 3 4 east\n\nunknown",
    "merge": "1: [Find the exit.] the exit is in the east (3/4)\n2: [Find it.] the exit is not in the west (0/0)\nmerge",
    "answer": (
        "Find the exit of the Amber Gallery.\nentry: the exit is in the east\nentry: do not trust the map\nat 3 4\nquestion: where?"
    ),
    "answer-without-notes": "Find the exit of the Amber Gallery.\nat 3 4\nquestion: where?",
}


@pytest.mark.parametrize("case", CASES)
def test_compact_renders_the_text_the_embedded_models_were_taught(case: str) -> None:
    name, variables = CASES[case]
    assert PromptSet.load("compact").render(name, **variables) == COMPACT[case]


@pytest.mark.parametrize("case", CASES)
def test_instruct_renders_its_golden_text(case: str) -> None:
    name, variables = CASES[case]
    text = PromptSet.load("instruct").render(name, **variables)
    file = GOLDEN / f"{case}.txt"
    if os.environ.get("CRL_UPDATE_GOLDEN"):
        file.write_text(text + "\n", encoding="utf-8")
    assert text + "\n" == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["compact", "instruct"])
def test_a_free_prompt_is_the_guided_one_without_any_trace_of_experience(name: str) -> None:
    prompts = PromptSet.load(name)
    free = prompts.render("actor", **{**GUIDED, "experience": [], "tool": False})
    guided = prompts.render("actor", **GUIDED)
    assert "ask" not in free.replace("# Task", "")
    assert not any(note in free for note in NOTES)
    assert set(free.splitlines()) - {"Reply with one action and nothing else."} < set(guided.splitlines())


@pytest.mark.parametrize("name", ["compact", "instruct"])
def test_text_is_put_in_as_it_is_and_never_evaluated(name: str) -> None:
    hostile = "{{ 7 * 7 }} {% raw %} <b>&amp;</b> # not a comment {# x #}\n\n  indented"
    assert hostile in PromptSet.load(name).render("actor", **{**FREE, "observation": hostile})
