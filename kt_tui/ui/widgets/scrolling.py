"""What the row-by-row widgets share: growing without a layout of the whole screen."""

from __future__ import annotations

from textual.geometry import Size
from textual.scroll_view import ScrollView


def resize_content(view: ScrollView, size: Size) -> None:
    """Sets how much there is to scroll.

    Assigning ``virtual_size`` lays the whole screen out again (Textual 8.2.8), several times a second while text
    streams. A view whose vertical scrollbar is always shown needs only that scrollbar to know.
    """
    if size == view.virtual_size:
        return
    view.set_reactive(ScrollView.virtual_size, size)
    view.vertical_scrollbar.window_virtual_size = size.height
    view.vertical_scrollbar.window_size = view.container_size.height
