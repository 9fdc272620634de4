"""Ending what a launch left behind, and only that: by launch mark and session, never by name."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kt_tui import processes
from kt_tui.net import is_listening
from kt_tui.paths import Paths
from kt_tui.supervise.child import MARK
from kt_tui.supervise.records import is_locked, read_record
from kt_tui.supervise.types import StopReport

_PATIENCE = 5.0


class Launch(NamedTuple):
    """What identifies the processes of one launch."""

    launch_id: str
    pid: int
    started: int

    @property
    def mark(self) -> bytes:
        """The environment entry that all of them inherited."""
        return f"{MARK}={self.launch_id}".encode()


def family(launch: Launch, known: Sequence[processes.Stat] = ()) -> list[processes.Stat]:
    """The living processes of ``launch``; ``known`` are earlier findings that may have shed mark and session."""
    if not launch.launch_id:
        return []
    return processes.family((launch.pid, launch.started), launch.mark, known)


def end_family(launch: Launch) -> list[processes.Stat]:
    """SIGKILL all processes of ``launch`` until none is left; gives those that would not go."""
    due = time.monotonic() + _PATIENCE
    while (left := family(launch)) and time.monotonic() < due:
        for stat in left:
            processes.send_signal(stat, signal.SIGKILL)
        time.sleep(0.05)
    return left


def end_leftovers(paths: Paths, name: str) -> None:
    """Clean up after a keeper that was killed: end what is left of its launch, remove its state file."""
    if is_locked(paths.engines / f"{name}.lock"):
        return
    path = paths.engines / f"{name}.json"
    record = read_record(path)
    if record is None:
        return
    end_family(Launch(record.launch_id, record.pid, record.started_ticks))
    for file in (path, path.with_suffix(".sock")):
        with contextlib.suppress(OSError):
            file.unlink()


def port_still_open(host: str, port: int, patience: float = 2.0) -> bool:
    """Whether ``port`` still accepts connections; a socket may outlive its process for a moment."""
    due = time.monotonic() + patience
    while is_listening(host, port):
        if time.monotonic() > due:
            return True
        time.sleep(0.05)
    return False


def stop_words(report: StopReport) -> str:
    """A stop in one sentence."""
    if report.gone:
        return "stopped; no process is left and the port is free"
    if report.survivors:
        names = ", ".join(f"{s.pid} ({s.name})" for s in report.survivors[:5])
        return f"could not be ended: process {names}; the kernel may be waiting for a device or disk"
    return "stopped, but another process now answers on its port"


def prune_logs(folder: Path, keep: int) -> None:
    """Remove all but the newest ``keep`` engine logs (with their previous parts)."""
    logs = sorted(folder.glob("*-*.log"), key=lambda path: path.name, reverse=True)
    for path in logs[keep:]:
        for file in (path, path.with_name(f"{path.name}.1")):
            with contextlib.suppress(OSError):
                file.unlink()
