"""Parts of a message that are rendered once for a width and a palette, and only when they are looked at."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kt_tui.ui.widgets.transcript.lines import Line
from kt_tui.ui.widgets.transcript.markdown import render_block, render_open_code, render_plain
from kt_tui.ui.widgets.transcript.palette import Palette
from kt_tui.ui.widgets.transcript.segmenter import Block, Segmenter, split_blocks

Render = Callable[[int, Palette], list[Line]]

LIVE = 2_048
"""Characters of unfinished text that are rendered again at every update; what is before them is frozen."""
KEPT = 512
"""Characters that stay live when the text before them is frozen."""


class Piece:
    """Some rows behind a blank one (if ``gap``). Their number is a guess until they are rendered."""

    __slots__ = ("_height", "_palette", "_render", "_size", "_width", "gap", "lines")

    def __init__(self, render: Render, source: str, *, gap: bool) -> None:
        self._render = render
        self._size = (len(source), source.count("\n") + 1)
        self._width = 0
        self._height = 0
        self._palette: Palette | None = None
        self.gap = gap
        self.lines: list[Line] | None = None

    def height(self, width: int) -> int:
        """Rows at this width, the blank one counted; exact once rendered, else guessed from the length."""
        if width != self._width:
            characters, lines = self._size
            self._width, self.lines = width, None
            self._height = self.gap + max(lines, -(-characters // max(width, 1)))
        return self._height

    def rows(self, width: int, palette: Palette) -> list[Line]:
        """The rows without the blank one, rendered now if need be."""
        if self.lines is None or width != self._width or palette is not self._palette:
            self.lines = self._render(width, palette)
            self._width, self._palette = width, palette
            self._height = self.gap + len(self.lines)
        return self.lines

    def release(self) -> None:
        """Gives the rows' memory back; the height stays exact."""
        self.lines = None


def block_piece(block: Block, *, first: bool = False, highlight: bool = True) -> Piece:
    """The piece of a settled block."""
    render = partial(_render_block, block, highlight)
    return Piece(render, block.source, gap=block.gap and not first)


def _render_block(block: Block, highlight: bool, width: int, palette: Palette) -> list[Line]:
    return render_block(block, width, palette, highlight=highlight)


class Tail:
    """Previews the unfinished end of a streamed text at a bounded cost an update.

    A long paragraph, list or open fence is frozen bit by bit, at a line end or a space, as it grows. The
    preview is replaced by the real blocks as soon as they are settled, so that no seam stays.
    """

    def __init__(self) -> None:
        self._frozen: list[Piece] = []
        self._cut = 0
        self._base = -1

    def pieces(self, segmenter: Segmenter, *, first: bool) -> list[Piece]:
        """The pieces for the segmenter's tail. ``first``: nothing of this text stands before it."""
        if self._base != len(segmenter.settled):
            self._frozen, self._cut, self._base = [], 0, len(segmenter.settled)
        tail = segmenter.tail
        gap = segmenter.gap and not first
        if not tail.strip():
            return []
        while len(tail) - self._cut > LIVE:
            end = _seam(tail, self._cut, len(tail) - KEPT)
            self._frozen.append(self._preview(segmenter, tail[self._cut : end], gap))
            self._cut = end
        return [*self._frozen, self._preview(segmenter, tail[self._cut :], gap)]

    def _preview(self, segmenter: Segmenter, text: str, gap: bool) -> Piece:
        opening = self._cut == 0
        if segmenter.fence and not opening:
            return Piece(partial(_render_code, text.removesuffix("\n")), text, gap=False)
        return Piece(partial(_render_text, text), text, gap=gap and opening)


class PlainStream:
    """Streamed text that is no Markdown (reasoning), in pieces that stop changing as it grows."""

    def __init__(self, render: Callable[[str, int, Palette], list[Line]]) -> None:
        self._render = render
        self._settled: list[Piece] = []
        self._live = ""

    def feed(self, text: str) -> None:
        """Adds text, whose line ends are already plain newlines."""
        self._live += text
        while len(self._live) > LIVE:
            end = _seam(self._live, 0, len(self._live) - KEPT)
            self._settled.append(self._piece(self._live[:end].removesuffix("\n")))
            self._live = self._live[end:]

    def pieces(self) -> list[Piece]:
        """The text in pieces; the last one is new at every call."""
        return [*self._settled, self._piece(self._live.rstrip("\n"))] if self._live.strip() else self._settled

    def _piece(self, text: str) -> Piece:
        def render(width: int, palette: Palette) -> list[Line]:
            return self._render(text, width, palette)

        return Piece(render, text, gap=False)


def _render_code(body: str, width: int, palette: Palette) -> list[Line]:
    return render_open_code(body, width, palette)


def _render_text(text: str, width: int, palette: Palette) -> list[Line]:
    lines: list[Line] = []
    for index, block in enumerate(split_blocks(text)):
        if block.gap and index:
            lines += render_plain("", width, palette.text)
        lines += render_block(block, width, palette, highlight=False)
    return lines


def _seam(text: str, start: int, end: int) -> int:
    """Where to freeze: after the last line end, else the last space, between ``start`` and ``end``."""
    for mark in ("\n", " "):
        if (at := text.rfind(mark, start, end)) > start:
            return at + 1
    return end
