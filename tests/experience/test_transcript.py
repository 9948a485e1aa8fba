import json
from dataclasses import replace

import pytest

from complementary_rl.experience.transcript import Transcript, shortened, transcript_from_json, transcript_to_json
from tests.helpers.scripted import task, transcript


def numbered(turns: int) -> Transcript:
    return replace(transcript(), turns=tuple((f"saw {i}", f"did {i}") for i in range(turns)), final_observation="end")


@pytest.mark.parametrize(
    "whole",
    [
        replace(transcript(3, 1, step=7, success=True, entries=(4, 9)), reward=0.1 + 0.2, final_observation="☃\n"),
        replace(transcript(turns=0), success=None, reward=None, instructions="be kind"),
    ],
)
def test_a_transcript_survives_json_bit_for_bit(whole: Transcript) -> None:
    assert transcript_from_json(json.loads(json.dumps(transcript_to_json(whole)))) == whole


def test_what_is_short_enough_stays_as_it_is() -> None:
    whole = numbered(5)
    assert shortened(whole, 5, None) == whole == shortened(whole, 5, 1000)


@pytest.mark.parametrize(
    ("kept", "turns", "final"),
    [
        (3, [("saw 0", "did 0"), ("saw 1", "did 1"), ("[2 turns left out]\nsaw 4", "did 4")], "end"),
        (1, [("saw 0", "did 0")], "[4 turns left out]\nend"),
        (0, [], "[5 turns left out]\nend"),
    ],
)
def test_turns_go_from_the_middle_and_a_mark_stays(kept: int, turns: list[tuple[str, str]], final: str) -> None:
    short = shortened(numbered(5), kept, None)
    assert (list(short.turns), short.final_observation) == (turns, final)


def test_every_text_is_cut_in_its_middle() -> None:
    cut = "abcde[90 characters left out]vwxyz"
    long = "abcde" + 90 * "-" + "vwxyz"
    whole = Transcript("t", task(0, description=long), 0, ((long, "short"), ("short", long)), long, None, None, instructions=long)
    short = shortened(whole, 2, 10)
    assert (short.task.description, short.instructions, short.final_observation) == (cut, cut, cut)
    assert short.turns == ((cut, "short"), ("short", cut))
