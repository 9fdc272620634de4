import pytest
from hypothesis import given
from hypothesis import strategies as st

from kt_tui.text import clean_text, one_line, strip_sequences


@pytest.mark.parametrize(
    "text",
    ["", "plain", "tab\tand\nnewline", "你好世界", "👨‍👩‍👧‍👦", "é", "שלום abc", "[bold] [/]", "⏺️", "\u200f"],
)
def test_ordinary_text_comes_back_as_it_went_in(text):
    assert clean_text(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("rm \u202efdp.exe", "rm \\u202efdp.exe"),
        ("a\u2066b\u2069", "a\\u2066b\\u2069"),
        ("bell\x07 nul\x00 del\x7f csi\x9b", "bell\\x07 nul\\x00 del\\x7f csi\\x9b"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("half \ud83d", "half \\ud83d"),
        ("line\u2028separator", "line\\u2028separator"),
    ],
)
def test_what_could_steer_a_terminal_is_written_out(text, expected):
    assert clean_text(text) == expected


@given(st.text(alphabet=st.characters()))
def test_no_text_at_all_keeps_a_control_character(text):
    cleaned = clean_text(text)
    assert all(c in "\n\t" or not (ord(c) < 32 or 127 <= ord(c) < 160) for c in cleaned)
    cleaned.encode()
    assert clean_text(cleaned) == cleaned


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b(Bx\x1b=y\x1bMz", "xyz"),
        ("\x1b[2K\x1b[1Gprogress", "progress"),
        ("\x1bPq#0\x1b\\after", "after"),
        ("no sequences", "no sequences"),
    ],
)
def test_complete_sequences_are_removed(text, expected):
    assert strip_sequences(text) == expected


@given(st.text(alphabet="\x1b[]0;m\x07\\aP"))
def test_whatever_is_left_of_sequences_is_cleaned(text):
    assert "\x1b" not in clean_text(strip_sequences(text))


def test_one_line_is_one_short_line():
    assert one_line("a\n\tb  c") == "a b c"
    assert one_line("x" * 500, 10) == "x" * 9 + "…"
    assert one_line("\x1b[0m") == "\\x1b[0m"
