"""One of a few words on one row: arrows, space or a click change it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Click
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget


class Choice(Widget, can_focus=True):
    """A value out of ``options``."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    Choice { height: 1; width: 1fr; background: $surface; padding: 0 1; }
    Choice:focus { background: $block-cursor-background; color: $block-cursor-foreground; }
    """
    HELP = "Left and right (or space) go through the values."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "step(-1)", "Previous", show=False),
        Binding("right,space", "step(1)", "Next value"),
    ]

    value: reactive[str] = reactive("", init=False)

    class Changed(Message):
        """The user took another value."""

        def __init__(self, choice: Choice, value: str) -> None:
            super().__init__()
            self.choice = choice
            self.value = value

        @property
        def control(self) -> Choice:
            """The widget."""
            return self.choice

    def __init__(self, options: Sequence[str], value: str, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.options = tuple(options)
        self.set_reactive(Choice.value, value)

    def render(self) -> Content:
        """The value between arrows."""
        return Content.assemble(("‹ ", "$muted"), self.value or "(by itself)", (" ›", "$muted"))

    def action_step(self, by: int) -> None:
        """Take the value ``by`` places further, round and round."""
        position = self.options.index(self.value) if self.value in self.options else -1
        self.value = self.options[(position + by) % len(self.options)]
        self.post_message(self.Changed(self, self.value))

    def on_click(self, _: Click) -> None:
        """The next value."""
        self.action_step(1)
