"""The state files of running engines: who runs, where, and whether that is still true."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kt_tui import processes
from kt_tui.net import client_url
from kt_tui.paths import Paths


@dataclass(frozen=True)
class EngineRecord:
    """One state file. ``alive`` is checked against pid and start time, never against the pid alone."""

    name: str
    path: Path
    pid: int
    started_ticks: int
    keeper_pid: int
    keeper_started_ticks: int
    owner_pid: int
    session: int
    launch_id: str
    host: str
    port: int
    model: str
    engine: str
    argv: tuple[str, ...]
    log_path: Path
    kept: bool
    started_at: float
    exit_code: int | None
    reason: str

    @property
    def alive(self) -> bool:
        """Whether exactly the engine process of this record still runs."""
        return processes.is_running(self.pid, self.started_ticks)

    @property
    def keeper_alive(self) -> bool:
        """Whether exactly the keeper of this record still runs."""
        return processes.is_running(self.keeper_pid, self.keeper_started_ticks)

    @property
    def base_url(self) -> str:
        """Where a client on this machine reaches it."""
        return client_url(self.host, self.port)


def record_name(port: int) -> str:
    """The name of the record of an engine on ``port`` (one engine a port, so one record a port)."""
    return f"port-{port}"


def _text(document: dict[str, Any], key: str) -> str:
    value = document.get(key)
    return value if isinstance(value, str) else ""


def _number(document: dict[str, Any], key: str) -> int:
    value = document.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def read_record(path: Path) -> EngineRecord | None:
    """The record in ``path``; None if it is missing, of another user, or makes no sense."""
    try:
        if path.stat().st_uid != os.getuid() or path.stat().st_size > 1 << 20:
            return None
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict):
        return None
    exit_code, started, argv = document.get("exit_code"), document.get("started_at"), document.get("argv")
    record = EngineRecord(
        name=path.stem,
        path=path,
        pid=_number(document, "pid"),
        started_ticks=_number(document, "started_ticks"),
        keeper_pid=_number(document, "keeper_pid"),
        keeper_started_ticks=_number(document, "keeper_started_ticks"),
        owner_pid=_number(document, "owner_pid"),
        session=_number(document, "session"),
        launch_id=_text(document, "launch_id"),
        host=_text(document, "host"),
        port=_number(document, "port"),
        model=_text(document, "model"),
        engine=_text(document, "engine"),
        argv=tuple(str(word) for word in argv) if isinstance(argv, list) else (),
        log_path=Path(_text(document, "log_path")),
        kept=document.get("kept") is True,
        started_at=float(started) if isinstance(started, int | float) else 0.0,
        exit_code=exit_code if isinstance(exit_code, int) else None,
        reason=_text(document, "reason"),
    )
    return record if record.pid and record.port and record.launch_id else None


def all_records(paths: Paths) -> list[EngineRecord]:
    """Every readable record, newest launch first."""
    try:
        files = sorted(paths.engines.glob("port-*.json"))
    except OSError:
        return []
    found = [record for file in files if (record := read_record(file)) is not None]
    return sorted(found, key=lambda record: record.started_at, reverse=True)


def running_engines(paths: Paths) -> list[EngineRecord]:
    """The engines of this user that run now, whichever panel started them, newest first."""
    return [record for record in all_records(paths) if record.alive]


def is_locked(path: Path) -> bool:
    """Whether a keeper holds the lock file ``path`` (the kernel frees it when the keeper ends in any way)."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(handle)
