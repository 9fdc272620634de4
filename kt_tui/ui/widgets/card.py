"""The card that says what happens with the engine: state in words, phase bar, seconds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static

from kt_tui.supervise.types import EngineState, EngineStatus
from kt_tui.ui.figures import duration
from kt_tui.ui.starting import Activity
from kt_tui.ui.widgets.bars import PhaseBar

if TYPE_CHECKING:
    from kt_tui.ui.app import KtApp

PHASES = ("start", "checkpoint", "weights", "warmup")
"""The embedded engine's phases while loading, in order."""

_WAITING = {EngineState.STARTING, EngineState.LOADING}


def phase_line(phase: str) -> Content:
    """All phases in a row: done, running, to come."""
    if phase not in PHASES:
        return Content(phase)
    at = PHASES.index(phase)
    pieces: list[tuple[str, str]] = []
    for index, name in enumerate(PHASES):
        mark, style = ("✓", "$ok") if index < at else ("●", "$primary") if index == at else ("○", "$muted")
        pieces += [(f"{mark} ", style), (f"{name}   ", "" if index == at else "$muted")]
    return Content.assemble(*pieces)


class ProgressCard(Vertical):
    """Hidden unless something is being prepared, started, loaded or stopped."""

    DEFAULT_CSS = """
    ProgressCard { height: auto; display: none; }
    ProgressCard.-shown { display: block; }
    ProgressCard Horizontal { height: 1; }
    ProgressCard .phase { width: 1fr; }
    ProgressCard .elapsed { width: auto; color: $muted; }
    ProgressCard .detail { color: $muted; height: 1; text-overflow: ellipsis; text-wrap: nowrap; }
    """

    def compose(self) -> ComposeResult:
        """Phase and seconds, bar, detail."""
        with Horizontal():
            yield Static("", classes="phase", markup=False)
            yield Static("", classes="elapsed", markup=False)
        yield PhaseBar()
        yield Static("", classes="detail", markup=False)

    def on_mount(self) -> None:
        """Follow the engine and the panel's own work."""
        app = cast("KtApp", self.app)
        self._since = time.monotonic()
        self._key: object = None
        self._clock = self.set_interval(1.0, self._tick, pause=True)
        app.engine_status_signal.subscribe(self, lambda _: self.follow())
        app.activity_signal.subscribe(self, lambda _: self.follow())
        self.follow()

    def follow(self) -> None:
        """Show what is going on now."""
        app = cast("KtApp", self.app)
        self.show(app.engine_status, app.activity)

    def show(self, status: EngineStatus, activity: Activity | None) -> None:
        """Show one state of things."""
        waiting = status.state in _WAITING
        shown = activity is not None or waiting or status.state is EngineState.STOPPING
        self.set_class(shown, "-shown")
        if not shown:
            self._clock.pause()
            self.query_one(PhaseBar).show(0.0)
            self._key = None
            return
        key = activity.title if activity is not None else (status.pid, status.state is EngineState.STOPPING)
        if key != self._key:
            self._key, self._since = key, time.monotonic()
        self._clock.resume()
        if activity is not None:
            phase, share = Content(activity.phase or activity.title), activity.share
            detail = activity.detail + ("   esc cancels" if activity.cancellable else "")
        else:
            phase = phase_line(status.phase or "start") if waiting else Content("stopping")
            share, detail = (status.progress if waiting else None), status.detail
        self.query_one(".phase", Static).update(phase)
        self.query_one(".detail", Static).update(detail.strip())
        self.query_one(PhaseBar).show(share)
        self._tick()

    def _tick(self) -> None:
        self.query_one(".elapsed", Static).update(duration(time.monotonic() - self._since))
