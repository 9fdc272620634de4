"""The engine's log: one line an event, ``kt-engine name=value ...``, on standard output.

Values that hold anything but plain characters are quoted like JSON strings, so a line stays a line and a terminal
shows no control sequence, whatever a file name or an error message holds. Prompts and answers are never logged.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import TextIO

from engine.config import LOG_LEVELS, LogLevel
from engine.progress import Progress

_EVERY_S = 0.25


class Log:
    """Writes lines; safe from any thread. A reader that went away is no reason to stop serving.

    Args:
        level: Lines below this are left out.
        stream: Where to write.
    """

    def __init__(self, level: LogLevel = "info", stream: TextIO | None = None) -> None:
        self._rank = LOG_LEVELS.index(level)
        self._stream = stream or sys.stdout
        self._lock = threading.Lock()
        self._phase = ""
        self._reported = 0.0

    @property
    def debug(self) -> bool:
        """Whether details for developers are wanted."""
        return self._rank == 0

    def line(self, _word: str = "", _level: LogLevel = "info", **values: object) -> None:
        """Write one line.

        Args:
            _word: What happened, in a word, without a name in front.
            _level: How important it is.
            values: Written as ``name=value``; those that are None are left out.
        """
        if LOG_LEVELS.index(_level) < self._rank:
            return
        words = ["kt-engine"] + ([_word] if _word else [])
        words += [f"{name}={_plain(value)}" for name, value in values.items() if value is not None]
        try:
            with self._lock:
                self._stream.write(" ".join(words) + "\n")
                self._stream.flush()
        except (OSError, ValueError):
            pass

    def progress(self, progress: Progress) -> None:
        """Write a progress report: at once for a new phase and for its end, else a few times a second."""
        now = time.monotonic()
        fraction = progress.fraction
        if progress.phase == self._phase and fraction != 1.0 and now - self._reported < _EVERY_S:
            return
        self._phase, self._reported = progress.phase, now
        shown = None if fraction is None else f"{fraction:.2f}"
        self.line(phase=progress.phase, progress=shown, detail=_Quoted(progress.detail))


class _Quoted(str):
    """A text that is always shown in quotes."""

    __slots__ = ()


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    if not isinstance(value, _Quoted) and text.isprintable() and text and not set(text) & set(' "=\\'):
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in quoted)
