from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kt_tui.text import clean_text
from kt_tui.ui.widgets.transcript.lines import Line
from kt_tui.ui.widgets.transcript.markdown import render_block, render_plain
from kt_tui.ui.widgets.transcript.segmenter import split_blocks
from tests.ui.transcript_cases import CONTROLS, MARKDOWN, MARKUP, PALETTE, RIGHT_TO_LEFT, WIDE, nasty_text


def rendered(text: str, width: int = 60) -> list[Line]:
    lines: list[Line] = []
    for block in split_blocks(clean_text(text)):
        if block.gap and lines:
            lines += render_plain("", width, PALETTE.text)
        lines += render_block(block, width, PALETTE)
    return lines


def shown(text: str, width: int = 60) -> list[str]:
    return [line.strip.text.rstrip() for line in rendered(text, width)]


def copied(text: str, width: int = 60) -> str:
    return "".join(
        line.strip.text[line.text_start : line.text_end] + line.joiner for line in rendered(text, width)
    )


@settings(max_examples=150)
@given(text=nasty_text, width=st.integers(10, 120))
def test_every_row_is_exactly_as_wide_as_asked(text: str, width: int) -> None:
    for line in rendered(text, width):
        assert line.strip.cell_length == width
        assert sum(segment.cell_length for segment in line.strip) == width


@pytest.mark.parametrize("text", [*MARKDOWN, *WIDE, *RIGHT_TO_LEFT])
@pytest.mark.parametrize("width", [20, 37, 80])
def test_the_right_border_stays_in_its_column(text: str, width: int) -> None:
    assert {line.strip.cell_length for line in rendered(text, width)} <= {width}


@pytest.mark.parametrize("text", MARKUP)
def test_brackets_appear_character_for_character(text: str) -> None:
    assert shown(text) == [text]
    assert shown(f"```\n{text}\n```") == [f"▎ {text}"]
    for line in rendered(text):
        assert all(not (segment.style and segment.style.meta) for segment in line.strip)


@pytest.mark.parametrize("text", [*CONTROLS, *RIGHT_TO_LEFT])
def test_nothing_that_steers_a_terminal_gets_through(text: str) -> None:
    for row in shown(text):
        assert clean_text(row) == row
        assert "\x1b" not in row


def test_headings_lists_quotes_and_code() -> None:
    text = "## Title\n\n- one\n  - two\n\n3. three\n10. ten\n\n> said\n\n```py\nx = 1\n```"
    assert shown(text, 30) == [
        "Title",
        "",
        "• one",
        "  ◦ two",
        "",
        " 3. three",
        "10. ten",
        "",
        "▎ said",
        "",
        "▎ py",
        "▎ x = 1",
    ]


def test_list_items_wrap_under_their_text() -> None:
    assert shown("1. alpha beta gamma", 12) == ["1. alpha", "   beta", "   gamma"]


def test_a_table_is_aligned_and_ruled() -> None:
    assert shown("|a|number|\n|:-|-:|\n|你好|1|") == ["a    │ number", "─────┼───────", "你好 │      1"]


def test_a_table_wraps_its_widest_column_first() -> None:
    assert shown("|k|v|\n|-|-|\n|a|one two three|", 12) == [
        "k │ v",
        "──┼─────────",
        "a │ one two",
        "  │ three",
    ]


def test_a_table_too_wide_for_columns_becomes_records() -> None:
    header = "|" + "|".join(f"column{n}" for n in range(6)) + "|"
    table = f"{header}\n{'|-' * 6}|\n|{'|'.join('value' for _ in range(6))}|"
    assert shown(table, 20)[0] == "column0: value"


def test_inline_styles_reach_the_strip() -> None:
    (line,) = rendered("a **b** *c* `d` ~~e~~")
    styles = {segment.text: segment.style for segment in line.strip if segment.style}
    assert styles["b"].bold
    assert styles["c"].italic
    assert styles["d"] == PALETTE.inline_code
    assert styles["e"].strike


def test_closed_code_is_coloured_and_open_code_is_not() -> None:
    (closed,) = split_blocks("```python\ndef f(): pass\n```")
    (opened,) = split_blocks("```python\ndef f(): pass")
    keyword = [
        segment
        for line in render_block(closed, 40, PALETTE)
        for segment in line.strip
        if segment.text == "def"
    ]
    assert keyword[0].style == PALETTE.code_keyword
    assert all(segment.text != "def" for line in render_block(opened, 40, PALETTE) for segment in line.strip)


@pytest.mark.parametrize(
    "language", ["python", "bash", "json", "rust", "diff", "unknown-language", "text", "cpp"]
)
def test_highlighting_never_changes_the_text(language: str) -> None:
    body = "def f(x):\n    return {'a': [1, 2]}  # 你好\n\n\n+ x \\\n"
    assert copied(f"```{language}\n{body}```") == body.removesuffix("\n") + "\n"


def test_copying_leaves_out_wraps_and_decoration() -> None:
    text = "one two three four five six\n\n```sh\nls -l /a/very/long/path/that/wraps\n```\n\n- item that has to wrap"
    assert copied(text, 20) == (
        "one two three four five six\n\nls -l /a/very/long/path/that/wraps\n\n• item that has to wrap\n"
    )


def test_a_link_shows_where_it_goes() -> None:
    assert shown("[text](http://x.y) <http://z.w>") == ["text (http://x.y) http://z.w"]


def test_a_line_of_a_megabyte_is_cut_on_screen_and_says_so() -> None:
    lines = rendered("a" * 1_000_000, 80)
    assert len(lines) < 500
    assert "967,232 more characters" in lines[-1].strip.text


def test_a_huge_block_is_shown_as_written() -> None:
    assert shown("**bold** text\n" * 6_000)[:2] == ["**bold** text", "**bold** text"]
