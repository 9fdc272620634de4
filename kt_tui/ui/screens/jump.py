"""Jump mode: a letter on everything that can take the focus; typing it goes there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Offset, Region
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Static

LETTERS = "asdfghjklqwertyuiopzxcvbnm"


def labels(count: int) -> list[str]:
    """``count`` labels of equal length, home row first."""
    if count <= len(LETTERS):
        return list(LETTERS[:count])
    return [first + second for first in LETTERS for second in LETTERS][:count]


def targets(screen: Screen[object]) -> list[tuple[Widget, Region]]:
    """Focusable widgets that can be seen now, with where they are, from the top left."""
    view = screen.region
    found = []
    for widget in screen.focus_chain:
        region = widget.region
        try:
            visible = screen.find_widget(widget).visible_region
        except Exception:  # noqa: S112 - textual.errors.NoWidget: in the chain, but not laid out
            continue
        if visible.area and view.contains_point(Offset(region.x, region.y)):
            found.append((widget, region))
    return sorted(found, key=lambda pair: (pair[1].y, pair[1].x))


class JumpScreen(ModalScreen[Widget | None]):
    """The labels, laid over the mode; gives the chosen widget."""

    DEFAULT_CSS = """
    JumpScreen { background: $background 40%; }
    JumpScreen .jump-label {
        width: auto; height: 1; padding: 0 1; background: $accent; color: $background; text-style: bold;
        position: absolute;
    }
    JumpScreen .jump-hint { dock: bottom; height: 1; width: 1fr; background: $surface; color: $muted; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Cancel")]

    def __init__(self, places: Iterable[tuple[Widget, Region]]) -> None:
        super().__init__()
        found = list(places)
        self._by_label = dict(zip(labels(len(found)), found, strict=True))
        self._typed = ""

    def compose(self) -> ComposeResult:
        """A label at the top left of each place."""
        for label, (_, region) in self._by_label.items():
            mark = Static(label, classes="jump-label", markup=False)
            mark.styles.offset = (region.x, region.y)
            yield mark
        yield Static(
            "Type a letter to go there, a digit for a mode, Esc to stay", classes="jump-hint", markup=False
        )

    async def on_key(self, event: events.Key) -> None:
        """Letters choose; digits show a mode; anything else stays."""
        character = event.character or ""
        if character.isdigit():
            event.stop()
            self.dismiss(None)
            await self.app.run_action(f"app.show_mode_number({character})")
        elif character and character in LETTERS:
            event.stop()
            self._typed += character
            if self._typed in self._by_label:
                self.dismiss(self._by_label[self._typed][0])
            elif not any(label.startswith(self._typed) for label in self._by_label):
                self.dismiss(None)
