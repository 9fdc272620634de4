"""The key footer: at most six keys of what has the focus, and F1."""

from __future__ import annotations

from textual.widgets import Footer


class KeyFooter(Footer):
    """Textual's footer, kept short."""

    def __init__(self) -> None:
        super().__init__(show_command_palette=False)
