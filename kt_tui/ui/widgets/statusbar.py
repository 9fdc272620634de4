"""The status line: the engine and the machine in one row, on every mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual.content import Content
from textual.widget import Widget

if TYPE_CHECKING:
    from kt_tui.ui.app import KtApp


class StatusBar(Widget):
    """Repaints only when its text changes."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    StatusBar { height: 1; padding: 0 1; background: $surface; color: $foreground; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._content = Content("")

    def on_mount(self) -> None:
        """Follow the engine and the figures."""
        app = cast("KtApp", self.app)
        app.engine_status_signal.subscribe(self, lambda _: self.update_content())
        app.snapshot_signal.subscribe(self, lambda _: self.update_content())
        self.update_content()

    def update_content(self) -> None:
        """Work out the text again; repaint if it differs."""
        content = self.build()
        if content != self._content:
            self._content = content
            self.refresh()

    def build(self) -> Content:
        """The text for what the app knows now."""
        status = cast("KtApp", self.app).engine_status
        return Content(f"{status.state} {status.model} {status.phase}")

    def render(self) -> Content:
        """The text as last built."""
        return self._content
