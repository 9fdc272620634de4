"""The engine's log as the Logs screen looks at it: bounded, filtered, searched. No drawing."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from kt_tui.supervise.log import LogLine

_ERROR = re.compile(
    r"\b(?:ERROR|CRITICAL|FATAL|Traceback|Segmentation fault|Illegal instruction|Aborted|core dumped)\b"
    r"|\b[A-Z]\w*(?:Error|Exception)\b|\bout of memory\b|^E\d{4} ",
)
_WARNING = re.compile(r"\bWARN(?:ING)?\b|\b[A-Z]\w*Warning\b|^W\d{4} ")
_DEBUG = re.compile(r"\b(?:DEBUG|TRACE)\b")
_HINT = re.compile(
    r"error|warn|fatal|critical|traceback|exception|fault|illegal|abort|core|memory|debug|trace|^[EW]\d",
    re.IGNORECASE,
)
"""One quick look that lets most lines pass without the three patterns above."""


class Level(IntEnum):
    """How much a line matters."""

    DEBUG = 0
    INFO = 1
    WARNING = 2
    ERROR = 3


LEVEL_NAMES = {Level.DEBUG: "all lines", Level.WARNING: "warnings and errors", Level.ERROR: "errors"}
"""The thresholds that one can choose, in the order of the key that cycles them."""


def level_of(text: str) -> Level:
    """The level that a line says it has, by the words that engines and Python use."""
    if not _HINT.search(text):
        return Level.INFO
    if _ERROR.search(text):
        return Level.ERROR
    if _WARNING.search(text):
        return Level.WARNING
    return Level.DEBUG if _DEBUG.search(text) else Level.INFO


@dataclass(frozen=True, slots=True)
class Row:
    """A line with its level."""

    line: LogLine
    level: Level


@dataclass(frozen=True)
class Pattern:
    """What is searched for: a regular expression if it is a valid one, else the text itself.

    Without a capital letter in it, capitals do not matter.
    """

    source: str
    regex: re.Pattern[str]
    literal: bool

    @classmethod
    def of(cls, text: str) -> Pattern | None:
        """The pattern of typed text; None for no text."""
        if not text:
            return None
        flags = re.NOFLAG if any(character.isupper() for character in text) else re.IGNORECASE
        try:
            return cls(text, re.compile(text, flags), literal=False)
        except re.error:
            return cls(text, re.compile(re.escape(text), flags), literal=True)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where it matches, empty matches left out."""
        return [match.span() for match in self.regex.finditer(text) if match.end() > match.start()]


class LogModel:
    """The last lines, and those of them that are shown. ``removed`` counts shown rows lost at the front."""

    def __init__(self, capacity: int = 10_000) -> None:
        self.capacity = capacity
        self._rows: deque[Row] = deque(maxlen=capacity)
        self.shown: deque[Row] = deque()
        self.pattern: Pattern | None = None
        self.only_matches = True
        self.threshold = Level.DEBUG
        self.removed = 0
        self.errors = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def clear(self) -> None:
        """Forgets all lines; the filter stays."""
        self._rows.clear()
        self.shown.clear()
        self.removed = self.errors = 0

    def extend(self, lines: Iterable[LogLine]) -> None:
        """Takes in new lines; one that replaces takes the place of the one before it."""
        for line in lines:
            row = Row(line, level_of(line.text))
            if line.replace and self._rows:
                old = self._rows.pop()
                self.errors -= old.level is Level.ERROR
                if self.shown and self.shown[-1] is old:
                    self.shown.pop()
            elif len(self._rows) == self._rows.maxlen:
                oldest = self._rows[0]
                self.errors -= oldest.level is Level.ERROR
                if self.shown and self.shown[0] is oldest:
                    self.shown.popleft()
                    self.removed += 1
            self._rows.append(row)
            self.errors += row.level is Level.ERROR
            if self._wanted(row):
                self.shown.append(row)

    def filter(self, *, pattern: Pattern | None, only_matches: bool, threshold: Level) -> None:
        """Shows other lines."""
        self.pattern, self.only_matches, self.threshold = pattern, only_matches, threshold
        self.shown = deque(row for row in self._rows if self._wanted(row))
        self.removed = 0

    def _wanted(self, row: Row) -> bool:
        if row.level < self.threshold:
            return False
        if self.pattern is None or not self.only_matches:
            return True
        return self.pattern.regex.search(row.line.text) is not None

    def next_match(self, start: int, step: int) -> int | None:
        """Index among the shown rows of the next match after ``start`` in direction ``step``; it wraps around."""
        count = len(self.shown)
        if self.pattern is None or not count:
            return None
        rows = list(self.shown)
        for distance in range(1, count + 1):
            index = (start + step * distance) % count
            if self.pattern.regex.search(rows[index].line.text):
                return index
        return None

    def first_error(self) -> int | None:
        """Index among the shown rows of the earliest error: what came after is often its consequence."""
        return next((index for index, row in enumerate(self.shown) if row.level is Level.ERROR), None)
