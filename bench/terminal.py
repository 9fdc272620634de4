"""A program in a pseudo-terminal of 120x40: what it paints, when, and how long a key takes to show."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import statistics
import struct
import sys
import termios
import time
from collections.abc import Mapping, Sequence

import psutil

COLUMNS, ROWS = 120, 40
LETTERS = "абвгдежзиклмнопрстуфхцчшщэюя"
"""Letters that no screen shows by itself: one of them in the output is the echo of its key."""


class Terminal:
    """Runs a command and reads all it writes."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self.started = time.perf_counter()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], list(command), dict(environ))  # noqa: S606 - the command is our own
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.process = psutil.Process(self.pid)
        self.output = bytearray()

    def read(self, limit: float) -> bytes:
        """What comes within ``limit`` seconds at most; returns with the first piece."""
        if not select.select([self.fd], [], [], max(limit, 0))[0]:
            return b""
        try:
            data = os.read(self.fd, 1 << 16)
        except OSError as error:  # the other side is gone
            tail = bytes(self.output[-2000:]).decode("utf-8", "replace")
            raise EOFError(f"the program ended by itself: {tail}") from error
        self.output += data
        return data

    def wait_for(self, text: str, limit: float = 30.0, start: int = 0) -> float:
        """Reads until ``text`` was written; the time since the start of the program."""
        wanted, deadline = text.encode(), time.perf_counter() + limit
        while self.output.find(wanted, start) < 0:
            if time.perf_counter() > deadline:
                tail = bytes(self.output[-2000:]).decode("utf-8", "replace")
                raise TimeoutError(f"{text!r} was never painted; the end of the output is {tail!r}")
            self.read(deadline - time.perf_counter())
        return time.perf_counter() - self.started

    def run(self, seconds: float) -> None:
        """Reads for a while."""
        deadline = time.perf_counter() + seconds
        while (left := deadline - time.perf_counter()) > 0:
            self.read(left)

    def key_to_paint(self, count: int, pause: float) -> list[float]:
        """Milliseconds from writing a key to reading its echo, for ``count`` keys, ``pause`` seconds apart."""
        times = []
        for number in range(count):
            letter = LETTERS[number % len(LETTERS)]
            if number and number % len(LETTERS) == 0:
                os.write(self.fd, b"\x15")  # ctrl+u empties the line
                self.run(0.2)
            start, before = len(self.output), time.perf_counter()
            os.write(self.fd, letter.encode())
            self.wait_for(letter, start=start)
            times.append((time.perf_counter() - before) * 1000)
            self.run(pause)
        return times

    def cpu_seconds(self) -> float:
        """Processor time of the program so far."""
        used = self.process.cpu_times()
        return used.user + used.system

    def close(self) -> None:
        """Ends the program."""
        os.kill(self.pid, signal.SIGTERM)
        deadline = time.monotonic() + 5
        while os.waitpid(self.pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
            with contextlib.suppress(EOFError):
                self.read(0.05)
        os.close(self.fd)


def program(module: str, *arguments: str) -> list[str]:
    """The command line of a module of this checkout."""
    return [sys.executable, "-m", module, *arguments]


def environment(home: str) -> dict[str, str]:
    """A plain colour terminal, an own home folder, and bytecode kept there, as an installed program has it."""
    return {
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "PYTHONPYCACHEPREFIX": f"{home}/bytecode",
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "KT_TUI_HOME": home,
    }


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Median and 95th percentile."""
    ordered = sorted(values)
    return statistics.median(ordered), ordered[min(int(len(ordered) * 0.95), len(ordered) - 1)]
