"""Facts as aligned lines: coloured on a terminal, plain text otherwise; sizes in words."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from kt_tui.text import clean_text, one_line

LABEL_WIDTH = 22
MAXIMUM_VALUE = 400


@dataclass(frozen=True)
class Section:
    """A heading with rows of label and value, or with one text that is shown whole (a command).

    ``style`` is the heading's colour on a terminal.
    """

    title: str
    rows: Sequence[tuple[str, str]] = ()
    text: str = ""
    style: str = "bold"


def show(sections: Sequence[Section]) -> None:
    """Print sections to standard output. Values are text from anywhere: they are cleaned, never markup."""
    filled = [section for section in sections if section.rows or section.text]
    if sys.stdout.isatty():
        _show_rich(filled)
        return
    for number, section in enumerate(filled):
        print(("\n" if number else "") + section.title)
        if section.text:
            print(f"  {clean_text(section.text)}")
        for label, value in section.rows:
            print(f"  {one_line(label):<{LABEL_WIDTH}} {one_line(value, MAXIMUM_VALUE)}".rstrip())


def _show_rich(sections: Sequence[Section]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    for number, section in enumerate(sections):
        if number:
            console.print()
        console.print(Text(section.title, style=section.style))
        if section.text:
            console.print(Text(f"  {clean_text(section.text)}"), soft_wrap=True)
        table = Table.grid(padding=(0, 1))
        table.add_column(min_width=2)
        table.add_column(min_width=LABEL_WIDTH, no_wrap=True)
        table.add_column(overflow="fold")
        for label, value in section.rows:
            table.add_row("", Text(one_line(label), style="dim"), Text(one_line(value, MAXIMUM_VALUE)))
        console.print(table)


def size(count: int | None) -> str:
    """A number of bytes in words: ``1.50 GiB``; ``n/a`` for None."""
    if count is None:
        return "n/a"
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.2f} TiB"


def known(value: object) -> str:
    """A value, or ``n/a``."""
    if value is None or value == "":
        return "n/a"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def sentences(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Sentences as rows: a short topic before a colon becomes the label."""
    rows = []
    for text in texts:
        topic, colon, rest = text.partition(": ")
        rows.append((topic, rest) if colon and len(topic) < LABEL_WIDTH and " " not in topic else ("", text))
    return rows
