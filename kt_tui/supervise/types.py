"""What an engine launch is, and what is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from kt_tui.errors import KtError
from kt_tui.net import client_url


class EngineState(StrEnum):
    """Where an engine stands between start and end."""

    IDLE = "idle"
    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def active(self) -> bool:
        """Whether there is a process behind it."""
        return self in {EngineState.STARTING, EngineState.LOADING, EngineState.READY, EngineState.STOPPING}


class EngineError(KtError):
    """An engine could not be started, reached or stopped."""


@dataclass(frozen=True)
class EngineSpec:
    """One launch: what to run and where it will answer.

    ``env`` is laid over the environment of the panel. ``api_key`` is kept out of every file, log and argument.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    host: str
    port: int
    model: str
    engine: str = "embedded"
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class EngineStatus:
    """The engine at one moment. Times are seconds since the epoch; ``progress`` is 0..1 or unknown (None)."""

    state: EngineState = EngineState.IDLE
    phase: str = ""
    progress: float | None = None
    detail: str = ""
    reason: str = "no engine has been started"
    pid: int | None = None
    host: str = ""
    port: int = 0
    model: str = ""
    engine: str = ""
    started_at: float | None = None
    ready_at: float | None = None
    exit_code: int | None = None  # negative: ended by that signal, as in subprocess
    log_path: Path | None = None
    kept: bool = False

    @property
    def base_url(self) -> str:
        """Where a client on this machine reaches the engine; empty without one."""
        return client_url(self.host, self.port) if self.port else ""


@dataclass(frozen=True)
class Survivor:
    """A process of the launch that did not end."""

    pid: int
    name: str


@dataclass(frozen=True)
class StopReport:
    """What stopping came to: ``gone`` only if no process is left and the port is closed."""

    gone: bool
    survivors: tuple[Survivor, ...] = ()
    seconds: float = 0.0
    port_open: bool = False
