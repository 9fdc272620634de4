"""Horizontal bars: parts of a whole, and progress through named phases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget


@dataclass(frozen=True)
class Part:
    """A share of a bar: its name, its size in the bar's unit, glyph and colour (a ``$variable``)."""

    name: str
    value: float
    glyph: str = "█"
    colour: str = "$cpu"


def cells_of(values: Sequence[float], total: float, width: int) -> list[int]:
    """Cells for each value in a bar of ``width`` cells for ``total``.

    Rounded so that the sum of cells is right, and a part that is not nothing gets a cell while there is room.
    """
    if total <= 0 or width <= 0:
        return [0] * len(values)
    cells: list[int] = []
    position, reached = 0, 0.0
    for value in values:
        reached += max(value, 0.0)
        end = round(min(reached / total, 1.0) * width)
        if value > 0 and end <= position:
            end = min(position + 1, width)
        cells.append(max(end - position, 0))
        position = max(end, position)
    return cells


def bar_content(parts: Sequence[Part], total: float, width: int) -> Content:
    """One row: the parts from the left, the rest empty."""
    cells = cells_of([part.value for part in parts], total, width)
    pieces = [(part.glyph * count, part.colour) for part, count in zip(parts, cells, strict=True) if count]
    rest = width - sum(cells)
    return Content.assemble(*pieces, ("░" * rest, "$empty"))


class StackBar(Widget):
    """Parts of a whole on one row; equal parts do not repaint."""

    ALLOW_SELECT = False
    DEFAULT_CSS = "StackBar { height: 1; width: 1fr; }"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self._parts: tuple[Part, ...] = ()
        self._total = 0.0

    def show(self, parts: Sequence[Part], total: float) -> None:
        """Set what the bar shows."""
        if (tuple(parts), total) != (self._parts, self._total):
            self._parts, self._total = tuple(parts), total
            self.refresh()

    def render(self) -> Content:
        """The row."""
        return bar_content(self._parts, self._total, self.size.width)


class PhaseBar(Widget):
    """Progress through one phase: a filled line when the share is known, a moving piece when it is not."""

    ALLOW_SELECT = False
    DEFAULT_CSS = "PhaseBar { height: 1; width: 1fr; }"
    PIECE = 8

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self._share: float | None = 0.0
        self._offset = 0

    def on_mount(self) -> None:
        """The moving piece advances four times a second, and only while it is shown."""
        self._timer = self.set_interval(0.25, self._advance, pause=True)

    def show(self, share: float | None) -> None:
        """Set the share (0..1), or None for "moving, no telling how far"."""
        if share is None:
            self._timer.resume()
        else:
            self._timer.pause()
            share = min(max(share, 0.0), 1.0)
        if share != self._share:
            self._share = share
            self.refresh()

    def _advance(self) -> None:
        if self._share is None and self.display and self.is_on_screen:
            self._offset += 2
            self.refresh()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002
        """Always one row."""
        return 1

    def render(self) -> Content:
        """The row, with the share in words at its right."""
        width = max(self.size.width - 6, 1)
        if self._share is None:
            start = self._offset % (width + self.PIECE) - self.PIECE
            lead, end = max(start, 0), min(max(start + self.PIECE, 0), width)
            return Content.assemble(
                ("─" * lead, "$empty"),
                ("━" * (end - lead), "$primary"),
                ("─" * (width - end), "$empty"),
                "   …  ",
            )
        done = int(self._share * width)
        return Content.assemble(
            ("━" * done, "$primary"), ("─" * (width - done), "$empty"), f" {self._share * 100:4.0f}%"
        )
