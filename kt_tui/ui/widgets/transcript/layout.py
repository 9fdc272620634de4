"""Where each row of a transcript is, with heights that are guesses until a message comes near the window."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from kt_tui.ui.widgets.transcript.entries import Entry
from kt_tui.ui.widgets.transcript.lines import Line
from kt_tui.ui.widgets.transcript.palette import Palette
from kt_tui.ui.widgets.transcript.pieces import Piece

KEEP_ROWS = 6_000
"""Rendered rows kept in memory before those far from the window are given back."""


class Place(NamedTuple):
    """A row by what it belongs to: it survives changes of heights above it. ``piece`` -1: the blank row."""

    entry: int
    piece: int
    row: int


Drawn = tuple[int, Line | None, bool]
"""What is drawn in a row: the entry it belongs to, its line (None: blank), whether it is the entry's first."""


def changed_rows(before: Sequence[Drawn], now: Sequence[Drawn]) -> range | None:
    """The rows from the first to the last that differ; None if nothing can be compared."""
    if len(before) != len(now):
        return None
    differ = [y for y, (old, new) in enumerate(zip(before, now, strict=True)) if not _alike(old, new)]
    return range(differ[0], differ[-1] + 1) if differ else range(0)


def _alike(old: Drawn, new: Drawn) -> bool:
    """The same line, or an equal one after it was rendered again."""
    if old[0] != new[0] or old[2] != new[2]:
        return False
    before, after = old[1], new[1]
    return before is after or (before is not None and after is not None and before.strip == after.strip)


class Layout:
    """Entries one below the other at one width."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.width = 0
        self._starts: list[int] | None = None  # the first row of each entry, and the total

    def invalidate(self) -> None:
        """Call after any change of an entry, the entries or the width."""
        self._starts = None

    @property
    def starts(self) -> list[int]:
        """First row of every entry, and one past the last row at the end."""
        if self._starts is None:
            self._starts = [0, *accumulate(entry.height(self.width) for entry in self.entries)]
        return self._starts

    @property
    def height(self) -> int:
        """All rows."""
        return self.starts[-1]

    def locate(self, row: int) -> Place:
        """What is at a row; the message there is split into its parts if it was not yet."""
        while True:
            index = min(max(bisect_right(self.starts, row) - 1, 0), len(self.entries) - 1)
            if index < 0:
                return Place(0, -1, 0)
            if self.entries[index].split:
                break
            self.pieces_of(index)
        entry = self.entries[index]
        offset = row - self.starts[index] - 1
        if offset < 0:
            return Place(index, -1, 0)
        for number, piece in enumerate(entry.pieces):
            height = piece.height(self.width)
            if offset < height:
                return Place(index, number, offset)
            offset -= height
        return Place(index, max(len(entry.pieces) - 1, -1), max(offset, 0))

    def row_of(self, place: Place) -> int:
        """The row of a place now."""
        if not self.entries:
            return 0
        index = min(place.entry, len(self.entries) - 1)
        pieces = self.pieces_of(index)
        start = self.starts[index]
        if place.piece < 0:
            return start
        before = sum(piece.height(self.width) for piece in pieces[: place.piece])
        last = pieces[place.piece].height(self.width) - 1 if place.piece < len(pieces) else 0
        return start + 1 + before + min(place.row, max(last, 0))

    def render_down(self, place: Place, rows: int, palette: Palette) -> None:
        """Makes at least ``rows`` rows from a place on exact."""
        done = -place.row
        for index in range(place.entry, len(self.entries)):
            pieces = self.pieces_of(index)
            for number in range(max(place.piece, 0) if index == place.entry else 0, len(pieces)):
                self._render(index, number, palette)
                done += pieces[number].height(self.width)
                if done >= rows:
                    return
            done += 1

    def render_up(self, place: Place, rows: int, palette: Palette) -> None:
        """Makes at least ``rows`` rows before a place exact."""
        done = 0
        for index in range(min(place.entry, len(self.entries) - 1), -1, -1):
            pieces = self.pieces_of(index)
            last = place.piece if index == place.entry else len(pieces) - 1
            for number in range(min(last, len(pieces) - 1), -1, -1):
                self._render(index, number, palette)
                done += pieces[number].height(self.width)
                if done >= rows:
                    return
            done += 1

    def pieces_of(self, index: int) -> list[Piece]:
        """The parts of an entry; splitting it replaces its guessed height."""
        entry = self.entries[index]
        if not entry.split:
            self.invalidate()
        return entry.pieces

    def _render(self, index: int, number: int, palette: Palette) -> None:
        entry = self.entries[index]
        piece = entry.pieces[number]
        before = piece.height(self.width)
        piece.rows(self.width, palette)
        if piece.height(self.width) != before:
            entry.changed()
            self.invalidate()

    def line(self, row: int, palette: Palette) -> Drawn:
        """The entry at a row, its line (None: blank), and whether this is the entry's first row of text."""
        if row >= self.height:
            return len(self.entries), None, False
        place = self.locate(row)
        if place.piece < 0 or not self.entries[place.entry].pieces:
            return place.entry, None, False
        piece = self.entries[place.entry].pieces[place.piece]
        lines = piece.rows(self.width, palette)
        offset = place.row - piece.gap
        if not 0 <= offset < len(lines):
            return place.entry, None, False
        return place.entry, lines[offset], place.piece == 0 and offset == 0

    def trim(self, first: int, last: int) -> None:
        """Gives rows far from the entries ``first`` to ``last`` back when many are held."""
        held = sum(len(piece.lines or ()) for entry in self.entries if entry.split for piece in entry.pieces)
        if held > KEEP_ROWS:
            for index, entry in enumerate(self.entries):
                if not first - 2 <= index <= last + 2:
                    entry.release()
