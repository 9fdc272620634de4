"""A real pseudo-terminal with a screen that can be read: what a user sees, as text."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Mapping, Sequence

import pexpect
import pyte


class Terminal:
    """Runs a command in a pty of a given size and keeps its screen with pyte."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], columns: int, rows: int) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = bytearray()
        self.child = pexpect.spawn(
            argv[0],
            list(argv[1:]),
            env={**env, "TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": str(rows)},
            dimensions=(rows, columns),
            timeout=None,
        )

    def pump(self, seconds: float = 0.1) -> None:
        """Read what the program has written within ``seconds``."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                data = self.child.read_nonblocking(65536, timeout=left)
            except pexpect.TIMEOUT:
                return
            except pexpect.EOF:
                return
            self.raw += data
            # pyte takes the private-mode query of the Kitty keyboard protocol for a cursor command.
            self._stream.feed(re.sub(rb"\x1b\[[<>=?][0-9;]*[a-zA-Z]", b"", data))

    def text(self) -> str:
        """The screen as lines."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    def wait_for(self, pattern: str, seconds: float = 60.0) -> re.Match[str]:
        """Wait until the screen matches; on a time-out fail with the screen."""
        end = time.monotonic() + seconds
        while True:
            self.pump(0.1)
            if match := re.search(pattern, self.text(), re.MULTILINE):
                return match
            if time.monotonic() > end or not (self.child.isalive() or self.child.buffer):
                raise AssertionError(f"never saw {pattern!r}; the screen was:\n{self.text()}")

    def send(self, text: str) -> None:
        """Type."""
        self.child.send(text)
        self.pump(0.05)

    def kill(self) -> None:
        """End the program the hard way."""
        if self.child.isalive():
            os.kill(self.child.pid, signal.SIGKILL)

    def wait_exit(self, seconds: float = 30.0) -> int | None:
        """Wait for the program's end and return its exit status (None when a signal ended it)."""
        end = time.monotonic() + seconds
        while self.child.isalive():
            self.pump(0.1)
            if time.monotonic() > end:
                raise AssertionError(f"still running after {seconds} s; the screen was:\n{self.text()}")
        self.pump(0.2)
        status: int | None = self.child.exitstatus
        return status
