"""The engine's output as lines: bounded, control sequences removed, progress lines replaced in place."""

from __future__ import annotations

import codecs
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kt_tui.supervise.notify import notify
from kt_tui.text import clean_text, strip_sequences

LINE_LIMIT = 16_384  # characters of a line that are kept for the screen; the file has all of them

_ENDS = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of output.

    Attributes:
        seq: Grows by one with each line published, so that a reader can tell what it has already seen.
        time: When the panel read it, seconds since the epoch.
        text: Safe to show: no control characters.
        replace: It takes the place of the line before it (a progress bar drew over itself).
    """

    seq: int
    time: float
    text: str
    replace: bool = False


Subscriber = Callable[[tuple[LogLine, ...]], None]


class LogRing:
    """The last ``capacity`` lines. Subscribers get the new lines of one read as one tuple, not line by line."""

    def __init__(self, capacity: int = 10_000, clock: Callable[[], float] = time.time) -> None:
        self._lines: deque[LogLine] = deque(maxlen=capacity)
        self._clock = clock
        self._subscribers: list[Subscriber] = []
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._tail = ""  # text of the line that has not ended yet
        self._open = False  # the newest line in the ring may still be replaced
        self._seq = 0
        self.dropped_lines = 0
        self.dropped_bytes = 0

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[LogLine]:
        return iter(tuple(self._lines))

    @property
    def last_seq(self) -> int:
        """The number of the newest line; 0 before the first."""
        return self._seq

    def since(self, seq: int) -> tuple[LogLine, ...]:
        """The kept lines with a number above ``seq``."""
        found = []
        for line in reversed(self._lines):
            if line.seq <= seq:
                break
            found.append(line)
        return tuple(reversed(found))

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        """Call ``callback`` with each batch of new lines; the function given back ends that."""
        self._subscribers.append(callback)

        def unsubscribe() -> None:
            if callback in self._subscribers:
                self._subscribers.remove(callback)

        return unsubscribe

    def clear(self) -> None:
        """Forget all lines, as before a new launch."""
        self._lines.clear()
        self._decoder.reset()
        self._tail, self._open = "", False
        self.dropped_lines = self.dropped_bytes = 0

    def feed(self, data: bytes, *, final: bool = False) -> tuple[LogLine, ...]:
        """Take in output as it came; gives (and publishes) the lines that it made."""
        text = self._tail + self._decoder.decode(data, final)
        fresh: list[LogLine] = []
        start = 0
        for end in _ENDS.finditer(text):
            if end[0] == "\r" and end.end() == len(text) and not final:
                break  # perhaps the first half of \r\n
            self._add(text[start : end.start()], fresh, open_after=end[0] == "\r")
            start = end.end()
        self._tail = text[start:]
        shown = self._tail.rstrip("\r")
        if shown:
            # A line without its end yet (a prompt, a progress bar that draws first and returns later).
            self._add(shown, fresh, open_after=True)
            if len(self._tail) > 4 * LINE_LIMIT:
                # Keep the beginning; the rest of an endless line is counted, not kept.
                self.dropped_bytes += len(self._tail) - 2 * LINE_LIMIT
                self._tail = self._tail[: 2 * LINE_LIMIT]
        return self._publish(fresh)

    def note(self, text: str) -> None:
        """Add a line of our own, such as a gap notice."""
        fresh: list[LogLine] = []
        self._add(text, fresh, open_after=False)
        self._publish(fresh)

    def _add(self, raw: str, fresh: list[LogLine], *, open_after: bool) -> None:
        text = clean_text(strip_sequences(raw))
        if len(text) > LINE_LIMIT:
            text = f"{text[:LINE_LIMIT]} … [{len(text) - LINE_LIMIT} more characters in the log file]"
        replaces = self._open and bool(self._lines)
        if replaces and not text:
            # "\r" before "\n", or a bar that erased itself: what is shown stays, and is now complete.
            self._open = open_after
            return
        self._seq += 1
        line = LogLine(self._seq, self._clock(), text, replaces)
        if replaces:
            self._lines.pop()
        elif len(self._lines) == self._lines.maxlen:
            self.dropped_lines += 1
        self._lines.append(line)
        self._open = open_after
        if replaces and fresh:
            # Within one batch only the last state of a bar is worth telling.
            line = LogLine(line.seq, line.time, line.text, fresh.pop().replace)
        fresh.append(line)

    def _publish(self, fresh: list[LogLine]) -> tuple[LogLine, ...]:
        batch = tuple(fresh)
        if batch:
            notify(self._subscribers, batch)
        return batch
