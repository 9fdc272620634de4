"""The status of an engine, worked out from what is told about it; does no input or output of its own."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kt_tui.supervise.health import Health
from kt_tui.supervise.log import LogLine
from kt_tui.supervise.notify import notify
from kt_tui.supervise.reasons import Ending, explain, parse_error, parse_phase
from kt_tui.supervise.types import EngineSpec, EngineState, EngineStatus

_SILENCE = 5.0  # seconds without an answer of a ready engine before the user is told

LOADING_STATES = frozenset({EngineState.STARTING, EngineState.LOADING})
WATCHED_STATES = LOADING_STATES | {EngineState.READY}


class Tracker:
    """Takes in log lines, answers of ``/health`` and the keeper's events; publishes each new status."""

    def __init__(self) -> None:
        self.status = EngineStatus()
        self._subscribers: list[Callable[[EngineStatus], None]] = []
        self._health_tells = False
        self._silent_since: float | None = None
        self._error = ""
        self._last_line = ""

    def subscribe(self, callback: Callable[[EngineStatus], None]) -> Callable[[], None]:
        """Call ``callback`` with each new status; the function given back ends that."""
        self._subscribers.append(callback)

        def unsubscribe() -> None:
            with contextlib.suppress(ValueError):
                self._subscribers.remove(callback)

        return unsubscribe

    def set(self, status: EngineStatus) -> None:
        """Publish ``status`` if it is new."""
        if status != self.status:
            self.status = status
            notify(self._subscribers, status)

    def change(self, **changes: Any) -> None:
        """Publish the status with some fields changed."""
        self.set(replace(self.status, **changes))

    def begin(self, spec: EngineSpec) -> None:
        """A launch has been asked for."""
        self._error = self._last_line = ""
        self.set(
            EngineStatus(
                state=EngineState.STARTING,
                reason="the process is being started",
                host=spec.host,
                port=spec.port,
                model=spec.model,
                engine=spec.engine,
            )
        )

    def started(self, event: Mapping[str, Any]) -> None:
        """The process exists (the keeper's ``started`` event, of a new launch or a kept one)."""
        self._health_tells, self._silent_since = False, None
        self.set(
            EngineStatus(
                state=EngineState.STARTING,
                reason="the process is starting",
                pid=int(event["pid"]),
                host=str(event["host"]),
                port=int(event["port"]),
                model=str(event["model"]),
                engine=str(event["engine"]),
                started_at=float(event["started_at"]),
                log_path=Path(str(event["log_path"])),
                kept=event.get("kept") is True,
            )
        )

    def lines(self, lines: tuple[LogLine, ...]) -> None:
        """New lines of the log."""
        phase = None
        for line in lines:
            self._error = parse_error(line.text) or self._error
            phase = parse_phase(line.text) or phase
            self._last_line = line.text.strip() or self._last_line
        if phase is not None and self.status.state in LOADING_STATES and not self._health_tells:
            self._loading(phase.phase, phase.progress, phase.detail)

    def health(self, answer: Health) -> None:
        """An answer of ``/health``, or that there was none."""
        if self.status.state not in WATCHED_STATES:
            return
        if answer.answered:
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = time.monotonic()
        if answer.ready:
            self.change(
                state=EngineState.READY,
                phase="",
                progress=None,
                detail="",
                reason="answers on " + self.status.base_url,
                ready_at=self.status.ready_at or time.time(),
            )
        elif self.status.state is EngineState.READY:
            silence = time.monotonic() - self._silent_since if self._silent_since is not None else 0.0
            self.change(
                detail=f"no answer on /health for {silence:.0f} s" if silence >= _SILENCE else answer.detail
            )
        elif answer.answered:
            # From now on the log's phases, which are read a little later, are old news.
            self._health_tells = self._health_tells or bool(answer.phase)
            self._loading(answer.phase, answer.progress, answer.detail)

    def _loading(self, phase: str, progress: float | None, detail: str) -> None:
        self.change(
            state=EngineState.LOADING,
            phase=phase or self.status.phase,
            progress=progress,
            detail=detail,
            reason="the model is loading",
        )

    def exited(self, event: Mapping[str, Any]) -> None:
        """The engine's own process has ended (the keeper's ``exit`` event)."""
        code = event.get("exit_code")
        exit_code = code if isinstance(code, int) else 0
        if self.status.state is EngineState.STOPPING or event.get("asked"):
            self.change(exit_code=exit_code)
            return
        oom, peak = event.get("oom"), event.get("peak_rss")
        ending = Ending(
            exit_code=exit_code,
            was_ready=self.status.state is EngineState.READY,
            error=self._error,
            last_line=self._last_line,
            oom=oom if isinstance(oom, dict) else {},
            peak_rss=peak if isinstance(peak, int) else 0,
        )
        self.finish(EngineState.FAILED, explain(ending), exit_code)

    def finish(self, state: EngineState, reason: str, exit_code: int | None = None) -> None:
        """The end: ``state`` is stopped or failed."""
        self.change(state=state, reason=reason, exit_code=exit_code, progress=None, detail="")
