from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kt_tui.text import clean_text
from kt_tui.ui.widgets.transcript.segmenter import Segmenter, parser, split_blocks
from tests.ui.transcript_cases import MARKDOWN, nasty_text


def chunked(text: str, sizes: list[int]) -> Segmenter:
    segmenter, at, turn = Segmenter(), 0, 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        segmenter.feed(text[at : at + size])
        at, turn = at + size, turn + 1
    segmenter.finish()
    return segmenter


sizes = st.lists(st.integers(1, 40), min_size=1, max_size=6)


@settings(max_examples=150)
@given(text=nasty_text.map(clean_text), sizes=sizes)
def test_any_chunking_gives_the_blocks_of_the_whole_text(text: str, sizes: list[int]) -> None:
    assert chunked(text, sizes).settled == split_blocks(text)


@pytest.mark.parametrize("text", MARKDOWN)
def test_one_character_at_a_time(text: str) -> None:
    assert chunked(text, [1]).settled == split_blocks(text)


@pytest.mark.parametrize("text", MARKDOWN)
def test_blocks_parsed_alone_are_the_blocks_of_the_document(text: str) -> None:
    whole = [token.type for token in parser().parse(text)]
    alone = [token.type for block in split_blocks(text) for token in parser().parse(block.source)]
    assert alone == whole


def test_settled_blocks_never_change() -> None:
    segmenter = Segmenter()
    seen: list[object] = []
    for character in "\n\n".join(MARKDOWN):
        segmenter.feed(character)
        assert segmenter.settled[: len(seen)] == seen
        seen = list(segmenter.settled)


def test_a_paragraph_settles_when_the_next_block_begins() -> None:
    segmenter = Segmenter()
    segmenter.feed("first\n\n")
    assert segmenter.settled == []
    segmenter.feed("- second\n")
    assert [block.source for block in segmenter.settled] == ["first"]
    assert segmenter.tail == "- second\n"


def test_a_fence_settles_with_its_closing_line() -> None:
    segmenter = Segmenter()
    segmenter.feed("```py\nx = 1\n\n# no heading\n")
    assert segmenter.fence == "```"
    assert segmenter.settled == []
    segmenter.feed("```\n")
    assert segmenter.fence == ""
    assert [(block.kind, block.closed) for block in segmenter.settled] == [("fence", True)]


def test_a_fence_that_never_closes_is_marked_open() -> None:
    segmenter = Segmenter()
    segmenter.feed("~~~\ntext")
    segmenter.finish()
    assert [(block.kind, block.closed) for block in segmenter.settled] == [("fence", False)]


def test_a_very_long_list_is_not_parsed_again_at_every_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from kt_tui.ui.widgets.transcript import segmenter as module

    parsed = []
    real = module._top_level
    monkeypatch.setattr(module, "_top_level", lambda source: parsed.append(len(source)) or real(source))
    segmenter = Segmenter()
    for number in range(3_000):
        segmenter.feed(f"- item number {number}\n")
    assert sum(parsed) < 25 * len(segmenter.tail)
