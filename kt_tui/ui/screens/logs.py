"""Logs: what the engine printed, followed, filtered, searched and copied."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, Static

from kt_tui.supervise.log import LogLine
from kt_tui.supervise.types import EngineStatus
from kt_tui.ui.figures import plural
from kt_tui.ui.logmodel import LEVEL_NAMES, Level, Pattern
from kt_tui.ui.screens.base import ModeScreen
from kt_tui.ui.turn_text import SEPARATOR
from kt_tui.ui.widgets.logview import LogView

EMPTY = "Nothing printed yet.\n\nWhat the engine prints appears here once one is started on Launch."


class LogsScreen(ModeScreen):
    """The supervisor's log."""

    MODE = "logs"
    CSS_PATH = "logs.tcss"
    AUTO_FOCUS = "LogView"
    HELP = LogView.HELP
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter", key_display="/", id="logs.filter"),
        Binding("escape", "end_filter", "End filter", show=False, id="logs.end-filter"),
        Binding("ctrl+c", "copy_selection", "Copy", show=False, priority=True, id="logs.copy-selection"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._unsubscribe: Callable[[], None] = lambda: None
        self._launch: float | None = None

    def compose_body(self) -> ComposeResult:
        """A line about the log, the log, the filter field when it is open."""
        with Vertical(id="logs"):
            yield Static("", id="logs-state", markup=False)
            yield Static(EMPTY, id="logs-empty", markup=False)
            yield LogView(id="log")
            yield Input(
                placeholder="regular expression or text; enter keeps it, esc ends it", id="logs-filter"
            )

    def on_mount(self) -> None:
        """Shows what is there and follows what comes."""
        log = self.services.supervisor.log
        self._launch = self.services.supervisor.status.started_at
        self.view.show_ring(log)
        self._unsubscribe = log.subscribe(self._arrived)
        self.kt.engine_status_signal.subscribe(self, self._engine_changed)
        self._describe()

    def on_unmount(self) -> None:
        """No more lines."""
        self._unsubscribe()

    @property
    def view(self) -> LogView:
        """The log's widget."""
        return self.query_one(LogView)

    def _arrived(self, lines: tuple[LogLine, ...]) -> None:
        self.view.write(lines)

    def _engine_changed(self, status: EngineStatus) -> None:
        if status.started_at != self._launch:
            self._launch = status.started_at
            self.view.show_ring(self.services.supervisor.log)  # another engine, maybe with lines already
        self._describe()

    # --- filter --------------------------------------------------------------------------------------------

    def action_filter(self) -> None:
        """Opens the filter field."""
        field = self.query_one("#logs-filter", Input)
        self.add_class("-filtering")
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filters as one types."""
        if self.has_class("-filtering"):
            self.view.set_filter(pattern=Pattern.of(event.value))

    def on_input_submitted(self) -> None:
        """Keeps the filter and goes back to the log."""
        self.remove_class("-filtering")
        self.view.focus()

    def action_end_filter(self) -> None:
        """Shows all lines again."""
        self.remove_class("-filtering")
        self.query_one("#logs-filter", Input).value = ""
        self.view.set_filter(pattern=None, threshold=Level.DEBUG)
        self.view.focus()

    # --- copy ----------------------------------------------------------------------------------------------

    def on_log_view_copy_requested(self, event: LogView.CopyRequested) -> None:
        """Copies what is shown."""
        if event.text:
            self.kt.copy(event.text)

    def action_copy_selection(self) -> None:
        """Copies what is selected; without a selection it is the app's key."""
        if not (selected := self.get_selected_text()):
            raise SkipAction
        self.kt.copy(selected)
        self.clear_selection()

    # --- the line above ------------------------------------------------------------------------------------

    def on_log_view_changed(self) -> None:
        """Counts and filter may differ."""
        self._describe()

    def on_resize(self) -> None:
        """The path is cut to the width."""
        self._describe()

    def _describe(self) -> None:
        view = self.view
        self.set_class(len(view.model) == 0, "-empty")
        left = SEPARATOR.join(self._facts())
        path = self.services.supervisor.status.log_path
        room = self.size.width - len(left) - 6
        right = shorten(path, room) if path else ""
        gap = max(self.size.width - 2 - len(left) - len(right), 2)
        self.query_one("#logs-state", Static).update(Content(left + " " * gap + right))

    def _facts(self) -> list[str]:
        view, model, log = self.view, self.view.model, self.services.supervisor.log
        facts = ["following" if view.follow else "stopped, G follows"]
        facts.append(f"{len(model):,} lines" if len(model) != 1 else "1 line")
        if model.errors:
            facts.append(plural(model.errors, "error"))
        if len(model.shown) != len(model):
            facts.append(f"{len(model.shown):,} shown")
        if model.threshold is not Level.DEBUG:
            facts.append(LEVEL_NAMES[model.threshold])
        if model.pattern is not None:
            kind = "text" if model.pattern.literal else "filter" if model.only_matches else "search"
            facts.append(f"{kind} {model.pattern.source[:24]}")
        if log.dropped_lines:
            facts.append(f"{log.dropped_lines:,} older only in the file")
        if view.wrapped:
            facts.append("wrapped")
        return facts


def shorten(path: Path, room: int) -> str:
    """A path within ``room`` characters: the home folder as ``~``, else its end; nothing below 12."""
    home = Path.home()
    text = f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
    if room < 12:
        return ""
    return text if len(text) <= room else "…" + text[-(room - 1) :]
