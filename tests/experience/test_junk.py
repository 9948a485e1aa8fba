"""What the junk filter refuses, and, more important, what it must not."""

from pathlib import Path

import numpy as np
import pytest
from helpers.banks import KEYS, add, open_bank
from hypothesis import example, given, settings
from hypothesis import strategies as st

from complementary_rl.config import BankConfig
from complementary_rl.errors import ConfigError
from complementary_rl.experience.bank import Bank
from complementary_rl.experience.embedding import HashingEmbedder
from complementary_rl.experience.junk import SHIPPED, JunkFilter

KEY = "Find the exit of the Amber Gallery."

GOOD = [
    "the exit is in the north-west",
    "not in the east",
    "north",
    "go west, then north",
    "north north north north north east",
    "left left left left left left left left",
    "push the box up, up, left, down; never into a corner",
    "be careful: lava in the east",
    "Be careful with the lava in the east.",
    "explore more of the north wing",
    "try a different strategy: dig down before the guard wakes",
    "The exit of the Amber Gallery is in the south",
    "find the exit in the north-west of the Amber Gallery",
    "the west one",
    "no exit in the east",
    "nothing is in the east",
    "key first",
    "2 5",
    ", ".join(f"{x} {40 - x}" for x in range(30)),
    "↑ ↑ → ↓",
    "出口は北西にある",
    "выход на северо-западе",
    "search for 'red shirt', filter by size XL, buy the first one under $30",
    "Use `grep -rn` before editing; run only the failing test, then the whole suite.",
    "room 1: exit north. room 2: exit west. room 3: exit south. room 4: exit east. room 5: exit north. room 6: exit centre.",
    "take the mug from the desk, heat it with the microwave, put it in the cabinet",
    "When a door is locked, kick it; when kicking fails three times, look for the key and do not give up.",
    " ".join(np.random.default_rng(0).choice(["up", "down", "left", "right"], 300)),
]

BAD = {
    "boilerplate": [
        "be careful",
        "Be careful!",
        "explore more",
        "Try a different strategy.",
        "You should try a different strategy next time.",
        "Be careful, explore more, and try a different approach.",
        "- be careful\n- explore more\n",
        "Lesson learned: be more careful next time.",
        "N/A",
        "none",
        "No new insight.",
        "There is nothing new to add.",
        "a new note",
        "the text that replaces the note with this id",
        '{"op": "add", "text": "a new note"}',
        '[{"op": "add", "text": "…"}]',
        "…",
        "----",
        "____",
        "```",
        "]}" * 80,
        "<note>",
        '<note id="1">\n</note>',
        "<note>be careful</note>",
        "The agent should always think before acting.",
        "ＢＥ　ＣＡＲＥＦＵＬ",
    ],
    "repetition": [
        "in the in the in the in the",
        "in the in the in the in the in",
        "the exit is the exit is the exit is the exit is the exit",
        "go to the north. " * 30,
        "".join(f"{i}. go to the north\n" for i in range(40)),
        "note " * 60,
        "a" * 300,
        "出口は北" * 60,
    ],
    "restates_task": [
        "Find the exit of the Amber Gallery.",
        "find the exit of the amber gallery",
        "You need to find the exit of the Amber Gallery!",
        "The goal is to find the exit of the Amber Gallery",
        "Task: find the exit of the Amber Gallery",
    ],
}


@pytest.mark.parametrize("text", GOOD)
def test_what_could_help_somebody_is_kept(text: str) -> None:
    assert JunkFilter().judge(text, KEY) is None


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in BAD.items() for text in texts])
def test_what_helps_nobody_is_refused(kind: str, text: str) -> None:
    assert JunkFilter().judge(text, KEY) == kind


@pytest.mark.parametrize(
    "text", ["the west one", "the key is in the north drawer", "the north drawer, not the south", "south, then north"]
)
def test_choosing_from_what_the_description_lists_is_no_restatement(text: str) -> None:
    assert JunkFilter().judge(text, "Which drawer holds the key: the north, the south, the east or the west one?") is None


@settings(max_examples=80, deadline=None)
@given(
    st.text(max_size=300)
    | st.lists(st.sampled_from(["be", "careful", "and", ".", "the", "<note>", "explore", "7", "…", "[", "'"])).map(" ".join),
    st.text(),
)
@example("\x00", "")
@example("'", "'")
@example("\ud800 be", "\ud800")
def test_every_text_gets_a_verdict_that_form_alone_does_not_change(text: str, key: str) -> None:
    junk = JunkFilter()
    verdict = junk.judge(text, key)
    assert verdict in (None, "boilerplate", "repetition", "restates_task")
    assert junk.judge(text, key) == verdict
    assert JunkFilter(SHIPPED).judge(text, key) == verdict


def test_verdicts_do_not_depend_on_case_or_outer_space() -> None:
    junk = JunkFilter()
    for text in [*GOOD, *(text for texts in BAD.values() for text in texts)]:
        assert junk.judge(f"  {text.upper()}\n", KEY.lower()) == junk.judge(text, KEY)


def test_a_file_of_ones_own_takes_the_place_of_the_shipped_one(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('openings = ["well"]\nendings = []\nlight = []\nphrases = ["Go north!"]\n')
    junk = JunkFilter(own)
    assert junk.judge("Well, go north.", KEY) is None, "an opening stands in the clause it opens"
    assert junk.judge("well go north", KEY) == "boilerplate"
    assert junk.judge("be careful", KEY) is None


@pytest.mark.parametrize("content", [None, "phrases = [", 'phrases = "x"\nopenings = []\nendings = []', "openings = []", "\udcff"])
def test_a_file_that_cannot_be_used_is_told(tmp_path: Path, content: str | None) -> None:
    own = tmp_path / "own.toml"
    if content is not None:
        own.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match=r"^bank\.boilerplate: .*copy of"):
        JunkFilter(own)


def test_the_bank_refuses_junk_whatever_brings_it_and_logs_why(tmp_path: Path) -> None:
    with open_bank(tmp_path / "b", junk_filter=True) as bank:
        ids = [add(bank, "go west"), add(bank, "go north")]
        given = [
            bank.add("be careful", key_text=KEYS[0], scope="rooms", step=1, generation_id="d"),
            bank.update(ids[0], "Explore more.", key_text="", scope="", step=1),
            bank.merge(ids, KEYS[0], step=1),
        ]
        assert [added.cause for added in given] == ["boilerplate", "boilerplate", "restates_task"]
        assert [entry.id for entry in bank.entries()] == ids
        record = bank.log(3)[0]
        assert (record.kind, record.payload["asked"], record.payload["generation"]) == ("refuse", "add", "d")
        assert record.payload["reason"] == "it says nothing (bank.junk_filter): be careful"
        assert bank.rebuild(1) == bank.entries()


def test_a_refused_rewriting_leaves_its_target_alone(tmp_path: Path) -> None:
    with open_bank(tmp_path / "b", junk_filter=True) as bank:
        entry = add(bank, "go west")
        assert bank.update(entry, "be careful", key_text="", scope="", step=1).outcome == "refused"
        assert bank.is_live(entry)
        counts = bank.counts()
        assert counts["refuse"] == counts["refused_boilerplate"] == 1
    with open_bank(tmp_path / "b", junk_filter=True) as bank:
        assert bank.counts() == counts


def test_switched_off_everything_is_taken(tmp_path: Path) -> None:
    with Bank.open(tmp_path / "b", BankConfig(junk_filter=False), HashingEmbedder(), run_id=None) as bank:
        add(bank, "be careful")
        add(bank, KEYS[0])


def test_a_bank_that_is_only_read_needs_no_phrases(tmp_path: Path) -> None:
    open_bank(tmp_path / "b").close()
    with open_bank(tmp_path / "b", read_only=True, junk_filter=True, boilerplate=tmp_path / "gone.toml") as bank:
        assert len(bank) == 0
    with pytest.raises(ConfigError, match=r"bank\.boilerplate"):
        open_bank(tmp_path / "b", junk_filter=True, boilerplate=tmp_path / "gone.toml")
