"""Reads files below ``/proc`` and ``/sys``, of this machine or of a capture; can keep a copy of what it read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

MAXIMUM_BYTES = 16 << 20  # /proc/cpuinfo of a 1024-CPU machine is about 2 MB
MAXIMUM_NAMES = 65_536


class SystemFiles:
    """Text files below a root folder. Nothing raises: what cannot be read is ``None``.

    Attributes:
        root: ``/``, or a captured folder with ``proc`` and ``sys`` in it.
        live: Whether this is the running machine, so that system calls agree with the files.
        seen: Text of each file read so far, by path below the root: exactly what a capture must hold.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = Path("/") if root is None else root
        self.live = root is None
        self.seen: dict[str, str] = {}

    def text(self, path: str, *, keep: bool = True) -> str | None:
        """The file's text (undecodable bytes replaced), at most ``MAXIMUM_BYTES``; ``None`` if unreadable.

        ``keep`` says whether a capture holds the file.
        """
        target = self._target(path)
        if target is None:
            return None
        try:
            # O_NONBLOCK: a named pipe in somebody's capture must not make us wait for a writer.
            descriptor = os.open(target, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    return None
                data = _read(descriptor)
            finally:
                os.close(descriptor)
        except (OSError, ValueError):
            return None
        text = data.decode("utf-8", errors="replace").replace("\0", "\ufffd")
        if keep:
            self.seen[path] = text
        return text

    def number(self, path: str) -> int | None:
        """The file's one whole number."""
        return whole_number(self.text(path))

    def names(self, folder: str) -> list[str]:
        """Names in a folder, sorted; empty if unreadable."""
        target = self._target(folder)
        if target is None:
            return []
        try:
            with os.scandir(target) as entries:
                return sorted(entry.name for entry, _ in zip(entries, range(MAXIMUM_NAMES), strict=False))
        except (OSError, ValueError):
            return []

    def exists(self, path: str) -> bool:
        """Whether something is there."""
        target = self._target(path)
        return target is not None and target.exists()

    def _target(self, path: str) -> Path | None:
        if "\0" in path or ".." in path.split("/"):
            return None
        target = self.root / path.lstrip("/")
        if self.live:
            return target
        try:
            # A capture comes from somebody else: its links must not lead to our own files.
            inside = target.resolve().is_relative_to(self.root.resolve())
        except (OSError, RuntimeError):
            return None
        return target if inside else None


def _read(descriptor: int) -> bytes:
    chunks, left = [], MAXIMUM_BYTES
    while left > 0 and (chunk := os.read(descriptor, min(left, 1 << 20))):
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)


def whole_number(text: str | None) -> int | None:
    """A decimal number of at most 20 digits, or ``None``."""
    stripped = (text or "").strip()
    digits = stripped.removeprefix("-")
    return int(stripped) if digits.isascii() and digits.isdigit() and len(digits) <= 20 else None


def parse_cpu_list(text: str | None, maximum: int = 65_536) -> tuple[int, ...] | None:
    """The ids of a kernel list such as ``0-3,8,10-14:2`` in ascending order; ``None`` if it is not one.

    An empty list is ``()``: memory-only nodes have one. Format: the kernel's ``Documentation/admin-guide/
    kernel-parameters.rst``, "cpu lists".
    """
    if text is None:
        return None
    ids: set[int] = set()
    for part in text.strip().split(","):
        piece = part.strip()
        if not piece:
            continue
        span, _, group = piece.partition(":")
        first_text, dash, last_text = span.partition("-")
        first = whole_number(first_text)
        last = whole_number(last_text) if dash else first
        used, _, period = group.partition("/")
        step = whole_number(period or used) if group else 1
        width = whole_number(used) if period else 1
        if first is None or last is None or step is None or width is None or step < 1:
            return None
        if not 0 <= first <= last < maximum:
            return None
        for start in range(first, last + 1, step):
            ids.update(range(start, min(start + width, last + 1)))
    return tuple(sorted(ids))


def format_cpu_list(ids: tuple[int, ...]) -> str:
    """The shortest kernel list of ascending ids: ``0-3,8``."""
    parts: list[str] = []
    start = previous = None
    for cpu in (*ids, None):
        if previous is not None and cpu == previous + 1:
            previous = cpu
            continue
        if start is not None:
            parts.append(str(start) if start == previous else f"{start}-{previous}")
        start = previous = cpu
    return ",".join(parts)
