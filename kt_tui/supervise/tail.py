"""Following a bounded log from another process, across its rotations, without ever falling behind."""

from __future__ import annotations

import os
from pathlib import Path

from kt_tui.supervise.log import LogRing
from kt_tui.supervise.logfile import HEADER_PATTERN

_PIECE = 1 << 18  # bytes taken in at once
_LAG_LIMIT = 4 << 20  # more unread bytes than this are skipped to
_LAG_KEEP = 1 << 20  # the last ones


class LogTail:
    """Moves what is appended to ``path`` into ``ring``; call `poll` often."""

    def __init__(self, path: Path, ring: LogRing, *, only_last: int | None = None) -> None:
        """``only_last`` begins that many bytes before the end, for a log that has been running for long."""
        self.path = path
        self.ring = ring
        self._handle = -1
        self._position = 0  # of the output as a whole, as the headers count it
        self._only_last = only_last

    def poll(self) -> bool:
        """Take in a piece; True if there is more at once (after a short piece it is better to wait a little)."""
        count = self._advance()
        return count == _PIECE or (count == 0 and self._follow_rotation())

    def _advance(self) -> int:
        """Take in a piece of the current file; gives its size."""
        if self._handle < 0 and not self._open(self.path):
            return 0
        self._skip_lag()
        data = os.read(self._handle, _PIECE)
        if data:
            self._position += len(data)
            self.ring.feed(data)
        return len(data)

    def finish(self) -> None:
        """Take in the rest, complete the last line and close."""
        while self._advance() or self._follow_rotation():
            pass
        self.ring.feed(b"", final=True)
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _open(self, path: Path) -> bool:
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        self.close()
        self._handle = handle
        header = HEADER_PATTERN.match(os.pread(handle, 4096, 0))
        start = int(header[1]) if header else 0
        if header:
            os.lseek(handle, header.end(), os.SEEK_SET)
        if self._only_last is not None:
            size = os.fstat(handle).st_size
            offset = max(size - self._only_last, header.end() if header else 0)
            os.lseek(handle, offset, os.SEEK_SET)
            start += offset - (header.end() if header else 0)
            if start:
                self.ring.note(f"(the log's first {start:,} bytes are not shown here)")
            self._only_last = None
        elif start > self._position:
            self._gap(start - self._position)
        self._position = start
        return True

    def _gap(self, count: int) -> None:
        self.ring.dropped_bytes += count
        self.ring.note(
            f"({count:,} bytes of output came faster than they could be shown; the log file may have them)"
        )

    def _skip_lag(self) -> None:
        here = os.lseek(self._handle, 0, os.SEEK_CUR)
        behind = os.fstat(self._handle).st_size - here
        if behind <= _LAG_LIMIT:
            return
        skipped = behind - _LAG_KEEP
        os.lseek(self._handle, skipped, os.SEEK_CUR)
        self._position += skipped
        self._gap(skipped)

    def _follow_rotation(self) -> bool:
        """At the end of a file: True if another one has been opened."""
        if self._handle < 0:
            return False
        current = os.fstat(self._handle).st_ino
        try:
            if self.path.stat().st_ino == current:
                return False
        except OSError:
            return False
        # Between two looks the log may have been rotated twice: then what follows lies in the previous file.
        previous = self.path.with_name(f"{self.path.name}.1")
        try:
            if previous.stat().st_ino != current and self._begins_here(previous):
                return self._open(previous)
        except OSError:
            pass
        return self._open(self.path)

    def _begins_here(self, path: Path) -> bool:
        with path.open("rb") as file:
            header = HEADER_PATTERN.match(file.read(4096))
        return header is not None and int(header[1]) >= self._position
