"""Tables of Markdown: columns as wide as their cells if there is room, else wrapped, else one line a value."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markdown_it.token import Token
from rich.cells import cell_len
from rich.style import Style

from kt_tui.ui.widgets.transcript.cells import tidy, wrap
from kt_tui.ui.widgets.transcript.lines import LineWriter, Run, slice_runs
from kt_tui.ui.widgets.transcript.palette import Palette

Cell = tuple[Run, ...]
SEPARATOR, CROSSING = " │ ", "─┼─"
NARROWEST_COLUMN = 5
BOLD = Style(bold=True)


def write_table(
    writer: LineWriter,
    palette: Palette,
    tokens: Sequence[Token],
    inline: Callable[[Token, Style], list[Run]],
) -> None:
    """Writes a table.

    Args:
        writer: Where to.
        palette: The styles.
        tokens: The tokens inside the table.
        inline: Turns an inline token into runs.
    """
    rows: list[list[Cell]] = []
    aligns: list[str] = []
    for index, token in enumerate(tokens):
        if token.type == "tr_open":
            rows.append([])
        elif token.type in ("th_open", "td_open"):
            if token.type == "th_open":
                aligns.append(str(token.attrGet("style") or "").removeprefix("text-align:"))
            style = palette.text + BOLD if token.type == "th_open" else palette.text
            runs = inline(tokens[index + 1], style)
            rows[-1].append(tuple(Run(tidy(text.replace("\n", " ")), style) for text, style in runs))
    natural = [max((_cells(row[column]) for row in rows), default=0) for column in range(len(aligns))]
    widths = _fit(natural, writer.room - len(SEPARATOR) * (len(natural) - 1))
    if widths is None:
        _write_records(writer, palette, rows)
        return
    for number, row in enumerate(rows):
        _write_row(writer, palette, row, widths, aligns)
        if number == 0:
            writer.row([Run(CROSSING.join("─" * width for width in widths), palette.rule)], decoration=0)


def _cells(cell: Cell) -> int:
    return sum(cell_len(run.text) for run in cell)


def _fit(natural: list[int], room: int) -> list[int] | None:
    """Column widths that fit: the widest columns give way first. None if even narrow columns do not fit."""
    widths = [max(width, 1) for width in natural]
    if sum(min(width, NARROWEST_COLUMN) for width in widths) > room:
        return None
    while (excess := sum(widths) - room) > 0:
        widest = max(widths)
        next_widest = max((width for width in widths if width < widest), default=NARROWEST_COLUMN)
        columns = [column for column, width in enumerate(widths) if width == widest]
        step = min(widest - max(next_widest, NARROWEST_COLUMN), -(-excess // len(columns))) or 1
        for column in columns:
            widths[column] -= step
    return widths


def _write_row(
    writer: LineWriter, palette: Palette, row: list[Cell], widths: list[int], aligns: list[str]
) -> None:
    wrapped = []
    for cell, width in zip(row, widths, strict=False):
        text = "".join(run.text for run in cell)
        wrapped.append([list(slice_runs(cell, start, end)) for start, end, _gap in wrap(text, width)])
    for line in range(max(map(len, wrapped), default=1)):
        runs: list[Run] = []
        for column, width in enumerate(widths):
            if column:
                runs.append(Run(SEPARATOR, palette.rule))
            part = wrapped[column][line] if column < len(wrapped) and line < len(wrapped[column]) else []
            spare = max(width - _cells(tuple(part)), 0)
            before = {"right": spare, "center": spare // 2}.get(aligns[column], 0)
            runs += [Run(" " * before, palette.text), *part, Run(" " * (spare - before), palette.text)]
        writer.row(runs)


def _write_records(writer: LineWriter, palette: Palette, rows: list[list[Cell]]) -> None:
    header, *body = rows
    for number, row in enumerate(body or [header]):
        if number:
            writer.row([])
        for name, cell in zip(header, row, strict=False):
            separator = [Run(": ", palette.muted)] if body else []
            writer.paragraph([*name, *separator, *(cell if body else ())])
