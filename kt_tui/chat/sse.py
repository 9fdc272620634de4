"""Server-sent events from bytes, cut anywhere (WHATWG HTML, section 9.2.6), tolerant where servers are sloppy."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

_EVENT_LIMIT = 16 << 20  # characters; a longer event is a fault of the server, not an answer

_LINE_END = re.compile("[\r\n]")


class SseError(Exception):
    """The bytes cannot be a stream of events."""


@dataclass(frozen=True)
class SseEvent:
    """One event; ``name`` is ``message`` unless the server named it."""

    data: str
    name: str = "message"


class SseDecoder:
    """Feed it bytes as they come; it gives the events that they complete.

    Tolerated: CRLF, LF and CR line ends in any mixture, a byte order mark, comments, unknown fields, fields without
    a space after the colon, blank lines without data, invalid UTF-8 (replaced), and a last event without its blank
    line (`finish`).
    """

    def __init__(self, limit: int = _EVENT_LIMIT) -> None:
        self._limit = limit
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line: list[str] = []  # pieces of the line that has not ended yet
        self._data: list[str] = []
        self._name = ""
        self._size = 0
        self._after_cr = False
        self._at_start = True

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events that ``data`` completes.

        Raises:
            SseError: An event is larger than the limit.
        """
        return self._take(self._decoder.decode(data))

    def finish(self) -> list[SseEvent]:
        """The stream has ended: the last event, if it has data and only its end is missing."""
        events = self._take(self._decoder.decode(b"", True))
        if self._line:
            self._end_line(events)
        self._dispatch(events)
        return events

    def _take(self, text: str) -> list[SseEvent]:
        events: list[SseEvent] = []
        if not text:
            return events
        if self._at_start:
            text = text.removeprefix("\ufeff")
            self._at_start = False
        if self._after_cr and text:
            # A CR ends a line at once; the LF of a CRLF may come in the next piece.
            text = text.removeprefix("\n")
            self._after_cr = False
        start = 0
        while match := _LINE_END.search(text, start):
            self._add(text[start : match.start()])
            self._end_line(events)
            start = match.end()
            if match[0] == "\r":
                if start == len(text):
                    self._after_cr = True
                elif text[start] == "\n":
                    start += 1
        self._add(text[start:])
        return events

    def _add(self, piece: str) -> None:
        if piece:
            self._line.append(piece)
            self._size += len(piece)
            if self._size > self._limit:
                raise SseError(f"one event is larger than {self._limit >> 20} MiB")

    def _end_line(self, events: list[SseEvent]) -> None:
        line = "".join(self._line)
        self._line.clear()
        if not line:
            self._dispatch(events)
            return
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        # Comments (no field name), id, retry and anything unknown say nothing about an answer.

    def _dispatch(self, events: list[SseEvent]) -> None:
        data = "\n".join(self._data)
        if data.strip():
            events.append(SseEvent(data, self._name or "message"))
        self._data.clear()
        self._name = ""
        self._size = 0
