"""Processes as ``/proc`` shows them: identity that survives pid reuse, trees, signals to exactly that process.

Standard library only, and no dataclasses: the keeper of an engine starts with this module.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from typing import NamedTuple

ZOMBIE_STATES = ("Z", "X", "x")


class Stat(NamedTuple):
    """The fields of ``/proc/PID/stat`` that tell who a process is (proc(5))."""

    pid: int
    name: str
    state: str
    parent: int
    group: int
    session: int
    started: int  # clock ticks after boot; with the pid it names a process uniquely

    @property
    def alive(self) -> bool:
        """Whether it can still run (a zombie only waits to be reaped)."""
        return self.state not in ZOMBIE_STATES


def read_stat(pid: int) -> Stat | None:
    """The process ``pid``, or None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib costs the keeper 10 ms of start
            raw = file.read()
    except OSError:
        return None
    # The name is in parentheses and may itself hold parentheses and spaces: the last one ends it.
    opening, closing = raw.find(b"("), raw.rfind(b")")
    fields = raw[closing + 2 :].split()
    if opening < 0 or len(fields) < 20:
        return None
    return Stat(
        pid=pid,
        name=raw[opening + 1 : closing].decode("utf-8", "replace"),
        state=fields[0].decode("ascii", "replace"),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        started=int(fields[19]),
    )


def is_running(pid: int, started: int) -> bool:
    """Whether exactly the process that had ``pid`` and start time ``started`` still runs."""
    stat = read_stat(pid)
    return stat is not None and stat.started == started and stat.alive


def scan() -> dict[int, Stat]:
    """Every process that ``/proc`` shows."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and (stat := read_stat(int(name))) is not None:
            found[stat.pid] = stat
    return found


def children(pid: int) -> list[int]:
    """The direct children of ``pid`` by the kernel's own lists (cost: the threads of ``pid``, not all processes)."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            with (
                contextlib.suppress(OSError),
                open(f"/proc/{pid}/task/{thread}/children", "rb") as file,  # noqa: PTH123
            ):
                found.extend(int(child) for child in file.read().split())
    return found


def descendants(pid: int) -> list[Stat]:
    """All living descendants of ``pid``, without itself; one moment's view, parents before children."""
    found: list[Stat] = []
    seen = {pid}
    queue = children(pid)
    if not queue and not os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children"):  # noqa: PTH110
        return _descendants_by_parent(pid)
    while queue:
        child = queue.pop(0)
        if child in seen:
            continue
        seen.add(child)
        if (stat := read_stat(child)) is not None and stat.alive:
            found.append(stat)
        queue.extend(children(child))
    return found


def _descendants_by_parent(pid: int) -> list[Stat]:
    # Kernels without CONFIG_PROC_CHILDREN.
    everyone = scan()
    family = {pid}
    grew = True
    while grew:
        more = {stat.pid for stat in everyone.values() if stat.parent in family} - family
        grew = bool(more)
        family |= more
    return [everyone[member] for member in family - {pid} if everyone[member].alive]


def has_environment(pid: int, entry: bytes) -> bool:
    """Whether ``pid`` was started with the environment entry ``NAME=value`` (False if it cannot be read)."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
            return entry in file.read().split(b"\0")
    except OSError:
        return False


def command_line(pid: int) -> str:
    """The command line of ``pid`` with spaces between words, or its name, or an empty string."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
            words = file.read().rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        words = ""
    if words:
        return words
    stat = read_stat(pid)
    return stat.name if stat is not None else ""


def send_signal(process: Stat, number: int) -> bool:
    """Signal exactly ``process``; False if it is gone or its pid now belongs to another one.

    The pid is pinned by a pidfd first and the start time checked after, so no other process can be hit.
    """
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        if not is_running(process.pid, process.started):
            return False
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def family(leader: tuple[int, int], entry: bytes, known: Iterable[Stat] = ()) -> list[Stat]:
    """Living processes of one launch: of its session, marked by ``entry`` in their environment, or ``known``.

    ``leader`` is the pid and start time of the session's leader. When its pid has gone to another process, the
    session counts for nothing. The caller itself is never part of it.
    """
    everyone = scan()
    everyone.pop(os.getpid(), None)
    session, started = leader
    holder = everyone.get(session)
    if holder is not None and holder.started != started:
        session = 0
    names = {(stat.pid, stat.started) for stat in known}
    return [
        stat
        for stat in everyone.values()
        if stat.alive
        and (
            (session and stat.session == session)
            or (stat.pid, stat.started) in names
            or has_environment(stat.pid, entry)
        )
    ]
