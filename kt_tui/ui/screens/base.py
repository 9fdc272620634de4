"""What all modes share: tab bar above, status line and key footer below, a hint when there is no room."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.containers import Container
from textual.screen import Screen
from textual.widgets import Static

from kt_tui.ui.widgets.footer import KeyFooter
from kt_tui.ui.widgets.statusbar import StatusBar
from kt_tui.ui.widgets.tabs import TabBar

if TYPE_CHECKING:
    from kt_tui.services import Services
    from kt_tui.ui.app import KtApp

TOO_SMALL = "kt-tui needs 60 columns and 16 rows; this terminal has fewer. Make it larger, or ctrl+q."


class ModeScreen(Screen[object]):
    """Base of the modes' screens; a mode composes only its body (`compose_body`)."""

    MODE = ""

    @property
    def kt(self) -> KtApp:
        """The app, with its type."""
        return cast("KtApp", self.app)

    @property
    def services(self) -> Services:
        """The domain."""
        return self.kt.services

    @property
    def composed(self) -> bool:
        """Whether the widgets are there: work that ends late may find the screen taken down already."""
        return bool(self.query(StatusBar))

    def compose(self) -> ComposeResult:
        """The body between the shared bars."""
        self.add_class(*self.kt.size_classes)
        yield TabBar(self.MODE)
        with Container(classes="mode-body"):
            yield from self.compose_body()
        yield Static(TOO_SMALL, classes="too-small", markup=False)
        yield StatusBar()
        yield KeyFooter()

    def compose_body(self) -> ComposeResult:
        """The widgets of the mode."""
        yield from ()
