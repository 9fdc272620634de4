"""Rendered rows, and the writer that wraps styled runs into them behind nested prefixes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from kt_tui.ui.widgets.transcript.cells import tidy, wrap

TAB = 4
LONGEST_LINE = 32_768
"""Characters of one source line that are shown; copying always takes all of them."""
NARROWEST = 8
"""Cells that nesting must leave for text; deeper prefixes are not drawn."""


class Run(NamedTuple):
    """Text of one style."""

    text: str
    style: Style


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """One row of exact width. ``text_start:text_end`` of the strip's text is content, the rest is decoration.

    ``joiner`` is what stands between this row and the next in the source: a line break, or what a wrap dropped.
    """

    strip: Strip
    text_start: int
    text_end: int
    joiner: str = "\n"


@dataclass
class _Prefix:
    first: Run
    rest: Run
    decoration: bool
    used: bool = False


class LineWriter:
    """Collects rows of ``width`` cells; ``fill`` is the style of everything that is not text."""

    def __init__(self, width: int, fill: Style) -> None:
        self.lines: list[Line] = []
        self.width = width
        self.fill = fill
        self._prefixes: list[_Prefix] = []

    @property
    def room(self) -> int:
        """Cells that the prefixes leave for text."""
        return self.width - sum(cell_len(prefix.rest.text) for prefix in self._prefixes)

    @contextmanager
    def indented(self, first: Run, rest: Run | None = None, *, decoration: bool = False) -> Iterator[None]:
        """Puts ``first`` before the first row written inside, ``rest`` (default: spaces) before the others.

        A prefix that is a ``decoration`` is never part of copied text.
        """
        rest = rest or Run(" " * cell_len(first.text), self.fill)
        if self.room - cell_len(rest.text) < NARROWEST:
            yield
            return
        prefix = _Prefix(first, rest, decoration)
        self._prefixes.append(prefix)
        yield
        if not prefix.used:
            self.row([])
        self._prefixes.pop()

    def row(
        self, runs: Iterable[Run], *, joiner: str = "\n", decoration: int = 0, fill: Style | None = None
    ) -> None:
        """One finished row; what does not fit is cut off.

        Args:
            runs: The text.
            joiner: What stands between this row and the next in the source.
            decoration: Leading characters of the runs that are not content.
            fill: Style of the rest of the row.
        """
        continued = bool(self.lines) and self.lines[-1].joiner != "\n"
        segments: list[Segment] = []
        bare = continued or decoration > 0
        for prefix in self._prefixes:
            text, style = prefix.rest if prefix.used else prefix.first
            prefix.used = True
            bare = bare or prefix.decoration
            segments.append(Segment(text, style))
        lead = sum(len(segment.text) for segment in segments)
        segments.extend(Segment(text, style) for text, style in runs if text)
        length = sum(len(segment.text) for segment in segments)
        cells = sum(segment.cell_length for segment in segments)
        if cells < self.width:
            segments.append(Segment(" " * (self.width - cells), fill or self.fill))
        strip = Strip(segments, max(cells, self.width))
        if cells > self.width:
            strip = strip.crop(0, self.width)
            length = len(strip.text)
        start = lead + decoration if bare else 0
        self.lines.append(Line(strip, min(start, length), length, joiner))

    def paragraph(
        self,
        runs: Iterable[Run],
        *,
        words: bool = True,
        lead: Run | None = None,
        fill: Style | None = None,
    ) -> None:
        """Wraps one source line; ``lead`` stands before every row and is not content."""
        pieces = [Run(tidy(text), style) for text, style in runs]
        text = "".join(piece.text for piece in pieces)
        if (cut := len(text) - LONGEST_LINE) > 0:
            text = text[:LONGEST_LINE]
        rows = wrap(text, self.room - (cell_len(lead.text) if lead else 0), words=words)
        for index, (start, end, gap) in enumerate(rows):
            body = list(slice_runs(pieces, start, end))
            self.row(
                [lead, *body] if lead else body,
                joiner="\n" if index == len(rows) - 1 else gap,
                decoration=len(lead.text) if lead else 0,
                fill=fill,
            )
        if cut > 0:
            note = Run(f"... {cut:,} more characters here; copying takes all of them", self.fill)
            self.row([lead, note] if lead else [note], fill=fill)


def slice_runs(runs: Iterable[Run], start: int, end: int) -> Iterator[Run]:
    """The part ``start:end`` of the runs' joined text."""
    position = 0
    for text, style in runs:
        after = position + len(text)
        if after > start and position < end:
            yield Run(text[max(start - position, 0) : end - position], style)
        position = after
        if position >= end:
            return
