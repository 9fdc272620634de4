"""A log on disk that cannot grow without bound: the current file and one before it.

Standard library only (used by the keeper).
"""

from __future__ import annotations

import contextlib
import os
import re

# The first line of every file after the first, so that a reader (and a person) can tell where it stands.
_HEADER = "[kt-tui: this log continues at byte {start}; earlier output is in {previous} or was dropped]\n"
HEADER_PATTERN = re.compile(rb"\[kt-tui: this log continues at byte (\d+);[^\n]*\n")


class BoundedLog:
    """Writes to ``path``; when it holds ``limit`` bytes it becomes ``path.1`` (replacing that) and a new one begins.

    A write that fails (disk full) is counted in ``lost_bytes`` and never raises: the engine must not die of it.
    """

    def __init__(self, path: str, limit: int) -> None:
        self.path = path
        self.limit = limit
        self.written = 0  # bytes of output so far, in all files
        self.lost_bytes = 0
        self._size = 0
        self._handle = -1
        self._open()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        self._size = 0
        try:
            self._handle = os.open(self.path, flags, 0o600)
        except OSError:
            self._handle = -1

    def write(self, data: bytes) -> None:
        """Append output."""
        if self._size + len(data) > self.limit and self._size:
            self._rotate()
        self.written += len(data)
        done = 0
        while done < len(data):
            try:
                count = os.write(self._handle, data[done:])
            except OSError:
                break
            done += count
        self._size += done
        self.lost_bytes += len(data) - done

    def _rotate(self) -> None:
        previous = f"{self.path}.1"
        self.close()
        with contextlib.suppress(OSError):
            os.replace(self.path, previous)  # noqa: PTH105 - no pathlib in the keeper
        self._open()
        header = _HEADER.format(start=self.written, previous=os.path.basename(previous)).encode()  # noqa: PTH119
        with contextlib.suppress(OSError):
            os.write(self._handle, header)

    def close(self) -> None:
        """Close the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
