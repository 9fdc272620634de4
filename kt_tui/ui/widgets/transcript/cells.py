"""Text measured in terminal cells: clusters that must stay together, and wrapping that loses nothing.

Everything here works on plain strings and returns character indices, so that styled runs can be cut at the
same places. Widths are Rich's, which are the ones that Textual pads and crops with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from rich.cells import cell_len, split_graphemes

_ASCII_UNITS = re.compile(r"[ \t]+|[^ \t]+")
_LOOSE_ENDS = re.compile("^[\u200d\ufe0f]+|\u200d+$")


class Row(NamedTuple):
    """One screen row cut from a longer line: ``text[start:end]``, then ``gap`` was dropped by the wrap."""

    start: int
    end: int
    gap: str


class _Unit(NamedTuple):
    """A stretch that is not broken unless it is wider than a whole row."""

    start: int
    end: int
    cells: int
    space: bool


def tidy(text: str) -> str:
    """A run without joiners at its ends: styled runs are measured one by one, a joiner needs both sides."""
    return text if text.isascii() else _LOOSE_ENDS.sub("", text)


def wrap(text: str, width: int, *, words: bool = True) -> list[Row]:
    """Rows of at most ``width`` cells that together hold every character of ``text``.

    Args:
        text: One line, without line breaks or tabs.
        width: Cells in a row, at least 2 (the widest cluster).
        words: Break at spaces and beside wide characters if possible; otherwise anywhere between clusters.

    Returns:
        At least one row. Spaces at a break are not shown; they are in the row's ``gap``.
    """
    width = max(width, 2)
    if not text or _fits(text, width):
        return [Row(0, len(text), "")]
    if not words:
        return list(_chop(text, 0, len(text), width))
    rows: list[Row] = []
    start, end, cells = 0, 0, 0  # the row being filled; `end` excludes spaces not yet followed by a word
    gap = 0  # cells of those spaces
    for unit in _units(text):
        if unit.space:
            if cells == 0 and rows:
                start = end = unit.end  # spaces at a break: the finished row keeps them as its gap
                rows[-1] = rows[-1]._replace(gap=rows[-1].gap + text[unit.start : unit.end])
            else:
                gap = unit.cells
            continue
        if cells + gap + unit.cells <= width:
            end, cells, gap = unit.end, cells + gap + unit.cells, 0
            continue
        if cells:
            rows.append(Row(start, end, text[end : unit.start]))
            gap = 0
        elif gap:
            rows.extend(_chop(text, start, unit.start, width))  # a line that begins with a wall of spaces
            gap = 0
        start, end, cells = unit.start, unit.end, unit.cells
        if unit.cells > width:
            pieces = list(_chop(text, unit.start, unit.end, width))
            rows.extend(pieces[:-1])
            start, end = pieces[-1].start, pieces[-1].end
            cells = cell_len(text[start:end])
    if cells or not rows:
        rows.append(Row(start, end, text[end:]))
    elif gap:
        rows[-1] = rows[-1]._replace(gap=rows[-1].gap + text[end:])
    return rows


def _fits(text: str, width: int) -> bool:
    # A cluster is at most two cells, and only zero-width characters make a line longer than its cells.
    return len(text) <= width * 8 and cell_len(text) <= width


def _units(text: str) -> Iterator[_Unit]:
    if text.isascii():
        for match in _ASCII_UNITS.finditer(text):
            first, last = match.span()
            yield _Unit(first, last, last - first, text[first] in " \t")
        return
    start, cells = 0, 0
    space: bool | None = None  # what is being gathered; None is nothing
    for first, last, size in split_graphemes(text)[0]:
        is_space = text[first:last] in (" ", "\t", "\u3000")  # not a space with a joiner and what it joins
        if size > 1 and not is_space:  # a wide cluster may stand alone on a row
            if space is not None:
                yield _Unit(start, first, cells, space)
            yield _Unit(first, last, size, space=False)
            start, cells, space = last, 0, None
        elif space is not None and is_space == space:
            cells += size
        else:
            if space is not None:
                yield _Unit(start, first, cells, space)
            start, cells, space = first, size, is_space
    if space is not None:
        yield _Unit(start, len(text), cells, space)


def _chop(text: str, start: int, end: int, width: int) -> Iterator[Row]:
    piece = text[start:end]
    if piece.isascii():
        for first in range(start, end, width):
            yield Row(first, min(first + width, end), "")
        return
    row_start, cells = start, 0
    for first, _last, size in split_graphemes(piece)[0]:
        if cells + size > width:
            yield Row(row_start, start + first, "")
            row_start, cells = start + first, 0
        cells += size
    yield Row(row_start, end, "")
