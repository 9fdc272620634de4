"""Selected text over many rows: what is highlighted, and what is copied (the source without its wraps)."""

from __future__ import annotations

from collections.abc import Iterable

from rich.style import Style
from textual.selection import Selection
from textual.strip import Strip

from kt_tui.ui.widgets.transcript.lines import Line


def highlight(strip: Strip, span: tuple[int, int], style: Style) -> Strip:
    """The strip with characters ``span`` (an end of -1 means to the end) in the selection's style."""
    text = strip.text
    first = min(span[0], len(text))
    last = len(text) if span[1] < 0 else min(span[1], len(text))
    if first >= last:
        return strip
    cells = [strip.index_to_cell_position(index) for index in (first, last)]
    parts = [strip.crop(0, cells[0]), _overlay(strip.crop(*cells), style), strip.crop(cells[1], None)]
    return Strip.join(parts)


def _overlay(strip: Strip, style: Style) -> Strip:
    # Strip.apply_style would put the selection under the segments' own colours.
    return Strip(
        [segment._replace(style=(segment.style or Style()) + style) for segment in strip], strip.cell_length
    )


def selected_text(lines: Iterable[tuple[int, Line | None]], selection: Selection, margin: int) -> str:
    """The text of the selected rows.

    Args:
        lines: Row numbers with their lines (None: a blank row), in order, the selected ones at least.
        selection: In columns that count characters of the whole row.
        margin: Characters before every line, never copied.
    """
    parts: list[str] = []
    joiner = ""
    for row, line in lines:
        span = selection.get_span(row)
        if span is None:
            continue
        if line is None:
            parts.append(joiner)
            joiner = "\n"
            continue
        first = max(span[0] - margin, line.text_start)
        last = line.text_end if span[1] < 0 else min(span[1] - margin, line.text_end)
        parts += [joiner, line.strip.text[first:last] if first < last else ""]
        joiner = line.joiner
    return "".join(parts)
