"""The full-screen app: modes, what they share, and how it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from textual.app import App
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.reactive import var
from textual.signal import Signal

from kt_tui.paths import shipped
from kt_tui.supervise.types import EngineState, EngineStatus
from kt_tui.ui import theming
from kt_tui.ui.modes import available_modes

if TYPE_CHECKING:
    from kt_tui.monitor import Snapshot
    from kt_tui.services import Services

Severity = Literal["information", "warning", "error"]


@dataclass(frozen=True)
class Opening:
    """What the command line asked to open: a model's launch form with some options set."""

    model: str | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    extra: tuple[str, ...] = ()


class SnapshotTaken(Message):
    """The sampler's thread has new figures."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot


class KtApp(App[int]):
    """The panel. Screens read ``services``, follow the two signals and ask for things through actions."""

    TITLE = "kt-tui"
    CSS_PATH = "app.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (80, "-normal"), (100, "-medium"), (120, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (16, "-short"), (30, "-tall")]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q,f10", "quit", "Quit", show=False, priority=True, id="app.quit"),
    ]

    engine_status: var[EngineStatus] = var(EngineStatus())

    def __init__(self, services: Services, opening: Opening | None = None) -> None:
        super().__init__()
        self.services = services
        self.opening = opening or Opening()
        self.engine_status_signal: Signal[EngineStatus] = Signal(self, "engine-status")
        self.snapshot_signal: Signal[Snapshot] = Signal(self, "snapshot")
        for mode in available_modes():
            self.add_mode(mode.name, mode.factory())

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest figures, if there are any yet."""
        return self.services.sampler.latest

    def say(self, text: str, severity: Severity = "information") -> None:
        """Tell the user something in passing. ``text`` is never read as markup."""
        self.notify(text, severity=severity, markup=False, timeout=8 if severity == "error" else 5)

    def copy(self, text: str) -> None:
        """Copy ``text`` to wherever this session can, and say where it went."""
        self.copy_to_clipboard(text)
        self.say(f"Copied {len(text)} characters")

    def watch_engine_status(self, status: EngineStatus) -> None:
        """Tell everyone."""
        self.engine_status_signal.publish(status)

    def on_snapshot_taken(self, message: SnapshotTaken) -> None:
        """Tell everyone."""
        self.snapshot_signal.publish(message.snapshot)

    async def action_show_mode(self, name: str) -> None:
        """Show a mode, unless a dialog is open."""
        if len(self.screen_stack) == 1 and name != self.current_mode:
            await self.switch_mode(name)
