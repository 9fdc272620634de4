from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from kt_tui.text import clean_text
from kt_tui.ui.widgets.transcript.cells import tidy, wrap
from tests.ui.transcript_cases import WIDE, nasty_text


def one_line(text: str) -> str:
    return tidy(clean_text(text).replace("\n", " ").expandtabs(4))


@given(text=nasty_text.map(one_line), width=st.integers(2, 120), words=st.booleans())
def test_rows_fit_and_lose_nothing(text: str, width: int, words: bool) -> None:
    rows = wrap(text, width, words=words)
    assert all(cell_len(text[start:end]) <= width for start, end, _gap in rows)
    assert "".join(text[start:end] + gap for start, end, gap in rows) == text
    assert all(not gap.strip() for _start, _end, gap in rows)


def test_words_stay_whole_where_they_fit() -> None:
    text = "the quick brown fox"
    assert [text[start:end] for start, end, _gap in wrap(text, 9)] == ["the quick", "brown fox"]


def test_a_word_wider_than_the_row_is_cut() -> None:
    text = "a " + "x" * 7 + " b"
    assert [text[start:end] for start, end, _gap in wrap(text, 3)] == ["a", "xxx", "xxx", "x b"]


def test_clusters_are_never_split() -> None:
    family = WIDE[2].removesuffix("|")
    text = family * 3
    assert [text[start:end] for start, end, _gap in wrap(text, 3)] == [family] * 3


def test_wide_characters_break_anywhere_but_never_in_half() -> None:
    text = "你好世界"
    assert [text[start:end] for start, end, _gap in wrap(text, 5)] == ["你好", "世界"]


def test_spaces_at_a_break_are_kept_as_its_gap() -> None:
    rows = wrap("ab   cd", 3)
    assert [(row.start, row.end, row.gap) for row in rows] == [(0, 2, "   "), (5, 7, "")]


def test_a_character_joined_to_a_space_is_no_space() -> None:
    text = "ab \u200dX cd"
    rows = wrap(text, 2)
    assert "".join(text[start:end] for start, end, _gap in rows).count("X") == 1
    assert all(not gap.strip() for _start, _end, gap in rows)
