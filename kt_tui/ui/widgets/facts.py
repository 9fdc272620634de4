"""Rows of a name and a value: names in a column, values wrapped beside them."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

Row = tuple[str, str | Content]


def facts_content(rows: Sequence[Row], name_width: int, width: int) -> Content:
    """The rows as text of at most ``width`` cells; a long value goes on below its own beginning."""
    room = max(width - name_width, 8)
    lines: list[Content] = []
    for name, value in rows:
        shown = value if isinstance(value, Content) else Content(value)
        label = name
        for part in shown.wrap(room) if shown.cell_length > room else [shown]:
            lines.append(Content.assemble((f"{label:<{name_width}}", "$muted"), part.rstrip()))
            label = ""
    return Content("\n").join(lines)


class Facts(Widget):
    """Name and value rows; equal rows do not repaint."""

    DEFAULT_CSS = "Facts { height: auto; }"

    def __init__(self, name_width: int = 14, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._name_width = name_width
        self._rows: tuple[Row, ...] = ()

    def show(self, rows: Sequence[Row]) -> None:
        """Set the rows."""
        if not _same(rows, self._rows):
            layout = self._height(rows) != self._height(self._rows)
            self._rows = tuple(rows)
            self.refresh(layout=layout)

    def _height(self, rows: Sequence[Row]) -> int:
        return len(facts_content(rows, self._name_width, self.size.width).split("\n"))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002
        """One row a line."""
        return len(facts_content(self._rows, self._name_width, width).split("\n")) if self._rows else 1

    def render(self) -> Content:
        """The rows for the present width."""
        return facts_content(self._rows, self._name_width, self.size.width)


def _same(left: Sequence[Row], right: Sequence[Row]) -> bool:
    """Like ``==``, which for `Content` looks at the text only."""
    return len(left) == len(right) and all(
        a[0] == b[0] and _as_content(a[1]).is_same(_as_content(b[1]))
        for a, b in zip(left, right, strict=True)
    )


def _as_content(value: str | Content) -> Content:
    return value if isinstance(value, Content) else Content(value)
