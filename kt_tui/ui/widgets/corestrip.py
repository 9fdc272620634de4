"""All cores in one widget: labelled bars for a few, a strip of heights per NUMA node for hundreds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from kt_tui.ui.figures import ids

_HEIGHTS = "▁▂▃▄▅▆▇█"
BAR_CELL = 22
MOST_BAR_ROWS = 8
LABEL = 8


def band(percent: float) -> str:
    """The colour class of a busy percentage."""
    return "high" if percent >= 85 else "mid" if percent >= 40 else "low"


def height_glyph(percent: float) -> str:
    """A block as tall as the percentage."""
    return _HEIGHTS[min(int(max(percent, 0.0) / 100 * len(_HEIGHTS)), len(_HEIGHTS) - 1)]


class CoreStrip(Widget):
    """Busy percentage of each logical CPU."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "core--low",
        "core--mid",
        "core--high",
        "core--empty",
        "core--label",
    }
    DEFAULT_CSS = """
    CoreStrip {
        height: auto;
        .core--low { color: $graph-low; }
        .core--mid { color: $graph-mid; }
        .core--high { color: $hot; }
        .core--empty { color: $empty; }
        .core--label { color: $muted; }
    }
    """

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._busy: tuple[float, ...] = ()
        self._groups: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def group(self, nodes: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Tell which CPUs belong to which NUMA node."""
        groups = tuple((f"node {node}", tuple(cpus)) for node, cpus in nodes if cpus)
        if groups != self._groups:
            self._groups = groups
            self.refresh(layout=True)

    def show(self, busy: Sequence[float]) -> None:
        """Set the percentages, in the kernel's order of CPUs. Repaints only if a shown number changes."""
        rounded = tuple(float(round(value)) for value in busy)
        if rounded != self._busy:
            layout = len(rounded) != len(self._busy)
            self._busy = rounded
            self.refresh(layout=layout)

    def _bar_columns(self, width: int) -> int:
        most = max(min(width // BAR_CELL, len(self._busy)), 1)
        rows = -(-len(self._busy) // most)
        return -(-len(self._busy) // rows) if self._busy else 1

    def _as_bars(self, width: int) -> bool:
        return -(-len(self._busy) // self._bar_columns(width)) <= MOST_BAR_ROWS

    def _strips(self, width: int) -> list[tuple[str, tuple[int, ...]]]:
        """Label and CPUs of each row of the strip form."""
        room = max(width - LABEL, 8)
        count = len(self._busy)
        groups = self._groups if len(self._groups) > 1 else (("cores", tuple(range(count))),)
        rows: list[tuple[str, tuple[int, ...]]] = []
        for name, cpus in groups:
            known = tuple(cpu for cpu in cpus if cpu < count)
            rows.extend(
                (name if start == 0 else "", known[start : start + room])
                for start in range(0, len(known), room)
            )
        return rows

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002
        """Rows that the present form needs."""
        if not self._busy:
            return 1
        if self._as_bars(width):
            return -(-len(self._busy) // self._bar_columns(width))
        return len(self._strips(width))

    def render_line(self, y: int) -> Strip:
        """One row."""
        width = self.size.width
        if not self._busy:
            return Strip([Segment("no figures yet" if y == 0 else "", self._style("label"))])
        return self._bar_line(y, width) if self._as_bars(width) else self._strip_line(y, width)

    def _bar_line(self, y: int, width: int) -> Strip:
        columns = self._bar_columns(width)
        rows = -(-len(self._busy) // columns)
        digits = len(str(len(self._busy) - 1))
        cell = width // columns
        room = max(cell - digits - 9, 4)
        segments: list[Segment] = []
        for column in range(columns):
            cpu = column * rows + y
            if cpu >= len(self._busy) or y >= rows:
                break
            busy = self._busy[cpu]
            full = min(round(busy / 100 * room), room)
            segments += [
                Segment(f"{cpu:>{digits}} ", self._style("label")),
                Segment("█" * full, self._style(band(busy))),
                Segment("░" * (room - full), self._style("empty")),
                Segment(f"{busy:4.0f}%".ljust(cell - digits - 1 - room), self._style("label")),
            ]
        return Strip(segments).adjust_cell_length(width, self.rich_style)

    def _strip_line(self, y: int, width: int) -> Strip:
        rows = self._strips(width)
        if y >= len(rows):
            return Strip.blank(width)
        label, cpus = rows[y]
        segments = [Segment(f"{label:<{LABEL}}", self._style("label"))]
        for cpu in cpus:
            busy = self._busy[cpu]
            segments.append(Segment(height_glyph(busy), self._style(band(busy))))
        return Strip(segments).simplify().adjust_cell_length(width, self.rich_style)

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(f"core--{name}")

    @property
    def tooltip_text(self) -> str:
        """Which CPUs the groups hold."""
        return "; ".join(f"{name}: CPUs {ids(cpus)}" for name, cpus in self._groups)
