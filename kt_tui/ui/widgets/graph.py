"""A history graph in braille dots with flat colours: two samples a cell, four dots a row, newest at the right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from textual.strip import Strip
from textual.widget import Widget

# Dots of a braille cell (Unicode 2800-28FF) from the bottom up, left and right column.
_LEFT = (0x40, 0x04, 0x02, 0x01)
_RIGHT = (0x80, 0x20, 0x10, 0x08)
_BLANK = 0x2800


def nice_ceiling(value: float) -> float:
    """The smallest 1, 2 or 5 times a power of ten that is not below ``value``; 1 for nothing."""
    if not value > 0 or math.isinf(value):
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-9))


def braille_rows(values: Sequence[float | None], width: int, height: int, top: float) -> list[str]:
    """The graph as text, highest row first. Unknown values leave a gap; zero draws one dot as a base line."""
    columns: list[float | None] = [None] * max(2 * width - len(values), 0)
    columns += values[-2 * width :]
    dots = [0 if v is None else min(max(round(v / top * height * 4), 1), height * 4) for v in columns]
    rows = []
    for row in range(height - 1, -1, -1):
        cells = []
        for cell in range(width):
            code = _BLANK
            for level, bits in ((dots[2 * cell], _LEFT), (dots[2 * cell + 1], _RIGHT)):
                code |= sum(bits[: min(max(level - 4 * row, 0), 4)])
            cells.append(" " if code == _BLANK else chr(code))
        rows.append("".join(cells))
    return rows


class Graph(Widget):
    """One series over time. The scale is a round number that holds the largest shown value."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"graph--low", "graph--mid", "graph--high", "graph--scale"}
    DEFAULT_CSS = """
    Graph {
        height: 4;
        .graph--low { color: $graph-low; }
        .graph--mid { color: $graph-mid; }
        .graph--high { color: $graph-high; }
        .graph--scale { color: $muted; }
    }
    """
    SCALE_WIDTH = 6

    def __init__(self, *, id: str | None = None, floor: float = 0.0) -> None:  # noqa: A002
        super().__init__(id=id)
        self._values: tuple[float | None, ...] = ()
        self._floor = floor
        self._rows: list[str] = []
        self._drawn: tuple[object, ...] = ()

    @property
    def samples_shown(self) -> int:
        """How many samples fit."""
        return 2 * max(self.size.width - self.SCALE_WIDTH, 1)

    @property
    def top(self) -> float:
        """The value of the upper edge."""
        shown = [value for value in self._values[-self.samples_shown :] if value is not None]
        return nice_ceiling(max([self._floor, *shown]))

    def show(self, values: Sequence[float | None]) -> None:
        """Set the series, oldest first."""
        if tuple(values) != self._values:
            self._values = tuple(values)
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """One row of the graph, with the scale at the left edge."""
        width, height = self.size.width, self.size.height
        drawn = (self._values, width, height)
        if drawn != self._drawn:
            plot = max(width - self.SCALE_WIDTH, 1)
            self._rows, self._drawn = braille_rows(self._values, plot, height, self.top), drawn
        if y >= len(self._rows):
            return Strip.blank(width)
        above = (height - y - 0.5) / height
        band = "high" if above > 2 / 3 else "mid" if above > 1 / 3 else "low"
        label = f"{self.top:g}" if y == 0 else "0" if y == height - 1 else ""
        return Strip(
            [
                Segment(f"{label:>{self.SCALE_WIDTH - 1}} ", self.get_component_rich_style("graph--scale")),
                Segment(self._rows[y], self.get_component_rich_style(f"graph--{band}")),
            ]
        )
