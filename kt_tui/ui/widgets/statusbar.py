"""The status line: the engine and the machine in one row, on every mode."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

from textual.content import Content
from textual.events import Resize
from textual.widget import Widget

from kt_tui.supervise.types import EngineState, EngineStatus
from kt_tui.ui.figures import duration, rate, size
from kt_tui.ui.states import MARKS

if TYPE_CHECKING:
    from kt_tui.monitor import Snapshot
    from kt_tui.ui.app import KtApp
    from kt_tui.ui.starting import Activity


def engine_part(status: EngineStatus, activity: Activity | None, now: float) -> Content:
    """The engine in words: state, model, phase or time since it is ready."""
    if activity is not None:
        share = "" if activity.share is None else f" {activity.share * 100:.0f}%"
        return Content.assemble(("◔ ", "$warn"), activity.title, (f" {activity.phase}{share}", "$muted"))
    mark, colour = MARKS[status.state]
    if status.state in {EngineState.IDLE, EngineState.STOPPED}:
        return Content.assemble((f"{mark} ", colour), ("no engine", "$muted"))
    pieces: list[tuple[str, str]] = [(f"{mark} {status.state}", colour), (f" {status.model}", "")]
    if status.state is EngineState.LOADING:
        share = "" if status.progress is None else f" {status.progress * 100:.0f}%"
        pieces.append((f" {status.phase}{share}", "$muted"))
    elif status.state is EngineState.READY and status.ready_at is not None:
        pieces.append((f" {duration(now - status.ready_at)}", "$muted"))
    return Content.assemble(*pieces)


def figure_parts(snapshot: Snapshot | None) -> list[Content]:
    """Speed, memory and GPU in words, most wanted first; what is not measured is left out."""
    parts: list[Content] = []
    if snapshot is None:
        return parts
    if snapshot.engine is not None and snapshot.engine.tokens_per_s is not None:
        parts.append(Content(rate(snapshot.engine.tokens_per_s)))
    if (memory := snapshot.memory) is not None:
        parts.append(
            Content.assemble(
                ("memory ", "$muted"), f"{size(memory.used)}", (f" of {size(memory.total)}", "$muted")
            )
        )
    used = [gpu.memory_used for gpu in snapshot.gpus if gpu.memory_used is not None]
    totals = [gpu.memory_total for gpu in snapshot.gpus if gpu.memory_total is not None]
    if used and totals:
        parts.append(
            Content.assemble(("VRAM ", "$muted"), size(sum(used)), (f" of {size(sum(totals))}", "$muted"))
        )
    if snapshot.cpu is not None:
        parts.append(Content.assemble(("CPU ", "$muted"), f"{snapshot.cpu.percent:.0f}%"))
    return parts


def fit(first: Content, parts: list[Content], last: Content | None, width: int) -> Content:
    """As many of ``parts`` as fit between ``first`` and ``last``, which is pushed to the right edge."""
    tail = 0 if last is None else last.cell_length + 2
    line = first.truncate(max(width - tail, 1), ellipsis=True)
    for part in parts:
        longer = Content.assemble(line, ("  │  ", "$line"), part)
        if longer.cell_length + tail > width:
            break
        line = longer
    if last is None:
        return line
    gap = max(width - line.cell_length - last.cell_length, 1)
    return Content.assemble(line, " " * gap, last)


class StatusBar(Widget):
    """Repaints only when its text changes."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    StatusBar { height: 1; padding: 0 1; background: $surface; color: $foreground; }
    """
    HELP = (
        "The state of the engine, its speed, and what is left of the machine. Alerts are listed on Home (1)."
    )

    def __init__(self) -> None:
        super().__init__()
        self._content = Content("")

    def on_mount(self) -> None:
        """Follow the engine and the figures."""
        app = cast("KtApp", self.app)
        app.engine_status_signal.subscribe(self, lambda _: self.update_content())
        app.activity_signal.subscribe(self, lambda _: self.update_content())
        app.snapshot_signal.subscribe(self, lambda _: self.update_content())
        self.update_content()

    def on_resize(self, _: Resize) -> None:
        """Another width holds more or fewer parts."""
        self.update_content()

    def update_content(self) -> None:
        """Work out the text again; repaint if it differs."""
        content = self.build(cast("KtApp", self.app), self.size.width)
        if not content.is_same(self._content):
            self._content = content
            self.refresh()

    def build(self, app: KtApp, width: int) -> Content:
        """The text for what the app knows now."""
        first = engine_part(app.engine_status, app.activity, time.time())
        count = len(app.alerts)
        last = Content.styled(f"! {count} alert{'s' if count > 1 else ''}", "$warn") if count else None
        return fit(first, figure_parts(app.snapshot), last, width)

    def render(self) -> Content:
        """The text as last built."""
        return self._content
