"""What the engine's processes use, summed over the tree."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from kt_tui import processes
from kt_tui.monitor.snapshot import ProcessSample

if TYPE_CHECKING:
    import psutil


@dataclass
class _Watched:
    process: psutil.Process
    cpu_s: float
    read: int | None
    written: int | None


class TreeReader:
    """Remembers the last reading of each process, so that rates come out."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._watched: dict[tuple[int, int], _Watched] = {}
        self._read_at: float | None = None

    def read(self, pid: int) -> ProcessSample | None:
        """Sum over ``pid`` and its descendants; None if ``pid`` is gone."""
        root = processes.read_stat(pid)
        if root is None or not root.alive:
            self._watched.clear()
            self._read_at = None
            return None
        now = self._clock()
        elapsed = now - self._read_at if self._read_at is not None else None
        before, self._watched = self._watched, {}
        rss = threads = 0
        cpu_s = read = written = 0.0
        io_known = False
        for stat in (root, *processes.descendants(pid)):
            key = (stat.pid, stat.started)
            entry = _look(stat.pid, before.get(key))
            if entry is None:
                continue
            watched, process_rss, process_threads = entry
            self._watched[key] = watched
            rss += process_rss
            threads += process_threads
            # A process that appeared since the last look did all its work in between.
            last = before.get(key)
            cpu_s += watched.cpu_s - (last.cpu_s if last else 0.0)
            if watched.read is not None and watched.written is not None:
                io_known = True
                read += watched.read - (last.read or 0 if last else 0)
                written += watched.written - (last.written or 0 if last else 0)
        self._read_at = now
        if elapsed is None or elapsed <= 0:
            return ProcessSample(pid, len(self._watched), rss, None, threads)
        return ProcessSample(
            pid=pid,
            processes=len(self._watched),
            rss=rss,
            cpu_percent=max(cpu_s / elapsed * 100.0, 0.0),
            threads=threads,
            read_per_s=max(read / elapsed, 0.0) if io_known else None,
            write_per_s=max(written / elapsed, 0.0) if io_known else None,
        )


def _look(pid: int, known: _Watched | None) -> tuple[_Watched, int, int] | None:
    import psutil

    try:
        process = known.process if known else psutil.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            rss = process.memory_info().rss
            threads = process.num_threads()
        read: int | None = None
        written: int | None = None
        with contextlib.suppress(psutil.AccessDenied, OSError):
            io = process.io_counters()
            read, written = io.read_bytes, io.write_bytes
    except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
        return None
    return _Watched(process, times.user + times.system, read, written), rss, threads
