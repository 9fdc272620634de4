"""The strip beside a wide chat: the engine, the last turn, the context, the memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import ClassVar

from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

LABEL = 9
"""Cells of the label column."""


class LiveStrip(Widget):
    """Rows of label and value. An empty pair is a blank row, a label alone is a heading."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"livestrip--heading", "livestrip--label", "livestrip--value"}
    DEFAULT_CSS = """
    LiveStrip {
        width: 30; padding: 1 1 0 2; border-left: solid $foreground 12%; color: $foreground;
        & > .livestrip--heading { color: $text-muted; text-style: bold; }
        & > .livestrip--label { color: $text-muted; }
        & > .livestrip--value { color: $foreground; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._rows: tuple[tuple[str, str], ...] = ()

    def show(self, rows: Sequence[tuple[str, str]]) -> None:
        """Draws these rows if they differ from what is drawn."""
        before, self._rows = self._rows, tuple(rows)
        for y, (old, new) in enumerate(zip_longest(before, self._rows)):
            if old != new:
                self.refresh(Region(0, y, self.size.width, 1))

    def render_line(self, y: int) -> Strip:
        """One row."""
        width = self.size.width
        base = self.rich_style
        if y >= len(self._rows):
            return Strip.blank(width, base)
        label, value = self._rows[y]
        style = self.get_component_rich_style("livestrip--label" if value else "livestrip--heading")
        segments = [Segment(f"{label:<{LABEL}}" if value else label, style)]
        if value:
            segments.append(Segment(value, self.get_component_rich_style("livestrip--value")))
        return Strip(segments).crop_extend(0, width, base)
