"""The tab bar: one digit a mode, the shown one marked."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.events import Resize
from textual.widgets import Static

from kt_tui.ui.machine_text import short_name
from kt_tui.ui.modes import Mode, available_modes

if TYPE_CHECKING:
    from kt_tui.hardware import Machine
    from kt_tui.ui.app import KtApp


FULL_TITLES = 64
"""Columns that brand and full titles need."""


class Tab(Static):
    """One mode in the bar; a click shows it."""

    ALLOW_SELECT = False

    def __init__(self, mode: Mode, number: int, *, current: bool) -> None:
        super().__init__(f"{number} {mode.title}", id=f"tab-{mode.name}", markup=False)
        self.mode = mode
        self._number = number
        self.set_class(current, "-current")
        self.tooltip = f"{mode.title}: {mode.purpose} (key {number} or alt+{number})"

    def shorten(self, short: bool) -> None:
        """Use the short title, or the full one."""
        self.update(f"{self._number} {self.mode.short if short else self.mode.title}")

    async def on_click(self) -> None:
        """Show the mode."""
        await self.app.run_action(f"app.show_mode('{self.mode.name}')")


class TabBar(Horizontal):
    """All modes side by side; the machine in short at the right."""

    DEFAULT_CSS = """
    TabBar {
        height: 1;
        background: $background;
        .brand { width: auto; padding: 0 2 0 1; color: $primary; text-style: bold; }
        Tab { width: auto; padding: 0 1; color: $muted; }
        Tab:hover { color: $foreground; }
        Tab.-current { color: $foreground; background: $panel; text-style: bold; }
        .machine {
            width: 1fr; padding: 0 1; text-align: right; color: $muted; text-overflow: ellipsis; text-wrap: nowrap;
        }
    }
    """

    def __init__(self, current: str) -> None:
        super().__init__()
        self.current = current
        self._short = False

    def compose(self) -> ComposeResult:
        """Brand, tabs, machine."""
        yield Static("kt-tui", classes="brand", markup=False)
        for number, mode in enumerate(available_modes(), 1):
            yield Tab(mode, number, current=mode.name == self.current)
        yield Static("", classes="machine", markup=False)

    def on_resize(self, event: Resize) -> None:
        """Short titles where the full ones do not fit."""
        if (short := event.size.width < FULL_TITLES) != self._short:
            self._short = short
            for tab in self.query(Tab):
                tab.shorten(short)

    def on_mount(self) -> None:
        """Name the machine once it is known."""
        app = cast("KtApp", self.app)
        app.machine_signal.subscribe(self, self._name_machine)
        if (machine := app.services.known_machine) is not None:
            self._name_machine(machine)

    def _name_machine(self, machine: Machine) -> None:
        self.query_one(".machine", Static).update(short_name(machine))
