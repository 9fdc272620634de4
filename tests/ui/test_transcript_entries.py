from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kt_tui.ui.widgets.transcript.entries import Answer, Entry, Kind
from kt_tui.ui.widgets.transcript.pieces import LIVE
from tests.ui.transcript_cases import MARKDOWN, PALETTE, nasty_text

WIDTH = 40


def rows(entry: Entry, width: int = WIDTH) -> list[str]:
    found = []
    for piece in entry.pieces:
        found += [""] * piece.gap + [line.strip.text.rstrip() for line in piece.rows(width, PALETTE)]
    return found


def streamed(text: str, sizes: list[int], reasoning: str = "") -> Answer:
    answer = Answer(handle="thinking" if reasoning else "")
    answer.streaming = True
    if reasoning:
        answer.append(reasoning=reasoning)
    at = turn = 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        answer.append(text[at : at + size])
        rows(answer)  # drawn in between, as on screen
        at, turn = at + size, turn + 1
    answer.finish()
    return answer


@settings(max_examples=150, deadline=None)
@given(text=nasty_text, sizes=st.lists(st.integers(1, 30), min_size=1, max_size=5))
def test_any_chunking_ends_as_the_one_shot_render(text: str, sizes: list[int]) -> None:
    answer = streamed(text, sizes)
    assert rows(answer) == rows(Answer(text))
    assert answer.content == text


@pytest.mark.parametrize("size", [1, 7, 300])
def test_a_long_answer_of_everything_ends_as_the_one_shot_render(size: int) -> None:
    text = "\n\n".join(MARKDOWN * 6)
    assert rows(streamed(text, [size])) == rows(Answer(text))


@pytest.mark.parametrize(
    "text", ["word " * 3_000, "x" * 10_000, "```py\n" + "x = 1\n" * 3_000, "- item\n" * 2_000]
)
def test_each_update_of_a_long_unfinished_block_renders_little(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kt_tui.ui.widgets.transcript import pieces

    drawn: list[int] = []
    for name in ("_render_text", "_render_code"):
        real = getattr(pieces, name)
        monkeypatch.setattr(
            pieces, name, lambda text, *rest, real=real: drawn.append(len(text)) or real(text, *rest)
        )
    answer = Answer()
    answer.streaming = True
    for at in range(0, len(text), 100):
        answer.append(text[at : at + 100])
        drawn.clear()
        rows(answer)
        assert sum(drawn) <= 2 * LIVE + 100
    answer.finish()
    assert rows(answer) == rows(Answer(text))


def test_what_is_visible_while_streaming_is_all_that_came() -> None:
    answer = Answer()
    answer.streaming = True
    for word in ["alpha", "beta", "gamma"]:
        answer.append(word + " ")
    assert rows(answer) == ["alpha beta gamma"]


def test_a_line_end_in_two_chunks_is_one_line_end() -> None:
    assert rows(streamed("a\r\nb", [2])) == ["a", "b"]


def test_reasoning_folds_itself_when_the_answer_begins() -> None:
    answer = Answer(handle="thinking  1.00 s")
    answer.streaming = True
    answer.append(reasoning="because")
    assert rows(answer) == ["▾ thinking  1.00 s", "  because"]
    answer.append("So.")
    assert rows(answer) == ["▸ thinking  1.00 s", "", "So."]
    answer.set_folded(False)
    assert rows(answer) == ["▾ thinking  1.00 s", "  because", "", "So."]


def test_whitespace_does_not_begin_the_answer() -> None:
    answer = Answer(handle="thinking")
    answer.streaming = True
    answer.append(reasoning="because")
    answer.append("\n\n")
    assert not answer.folded


def test_content_that_was_reasoning_moves() -> None:
    answer = Answer(handle="thinking")
    answer.streaming = True
    answer.append("actually thoughts")
    answer.restart("", "actually thoughts")
    assert rows(answer) == ["▾ thinking", "  actually thoughts"]


def test_the_users_words_are_never_markdown() -> None:
    assert rows(Entry(Kind.USER, "# not *a* heading\n[b]x[/b]")) == ["# not *a* heading", "[b]x[/b]"]


def test_decoration_is_not_copied() -> None:
    answer = Answer("text", "why", handle="thinking", footer="TTFT 1 s")
    lines = [line for piece in answer.pieces for line in piece.rows(WIDTH, PALETTE)]
    copied = [line.strip.text[line.text_start : line.text_end] for line in lines]
    assert [text for text in copied if text] == ["text"]


def test_height_is_exact_after_rendering() -> None:
    answer = Answer(MARKDOWN[0], footer="x")
    found = rows(answer)
    answer.changed()
    assert answer.height(WIDTH) == 1 + len(found)
