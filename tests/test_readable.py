"""Text that a terminal would obey is shown and not obeyed."""

import pytest

from complementary_rl.readable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("over\rwritten\x08\x00", r"over\rwritten\x08\x00"),
        ("\x9b2J \x85", r"\x9b2J \x85"),
        ("\u202eabc\u2066\u200f", r"\u202eabc\u2066\u200f"),
        ("\u200b\u2028\ufeff\U000e0041", r"\u200b\u2028\ufeff\U000e0041"),
        ("half \ud800", r"half \ud800"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize("text", ["", "plain\n\ttext", "ÄÖÜ 日本語\u3000\u00a0 🙂 e\u0301 \\x1b"])
def test_what_is_only_to_be_read_stays(text: str) -> None:
    assert printable(text) == text


def test_one_line_stays_one_line() -> None:
    assert printable("a\nb\tc", keep="") == r"a\nb\tc"
