"""Rows of a name and a value, names aligned."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

Row = tuple[str, str | Content]


def facts_content(rows: Sequence[Row], width: int) -> Content:
    """The rows as text: names in a column of ``width``, then the values."""
    lines = []
    for name, value in rows:
        shown = value if isinstance(value, Content) else Content(value)
        lines.append(Content.assemble((f"{name:<{width}}", "$muted"), shown))
    return Content("\n").join(lines)


class Facts(Static):
    """Name and value rows; equal rows do not repaint."""

    DEFAULT_CSS = "Facts { height: auto; }"
    NAME_WIDTH = 14

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__("", id=id, markup=False)
        self._shown = Content("")

    def show(self, rows: Sequence[Row]) -> None:
        """Set the rows."""
        content = facts_content(rows, self.NAME_WIDTH)
        if not content.is_same(self._shown):
            self._shown = content
            self.update(content)
