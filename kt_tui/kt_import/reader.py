"""One mapping of such a file, read key by key, with a sentence for all that is not taken over."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any


class Reader:
    """Takes values out of a mapping and keeps account of the rest.

    Args:
        values: The mapping.
        where: What it is, at the beginning of each sentence (``run_configs.yaml, "fast"``).
        notes: Where the sentences go.
    """

    def __init__(self, values: Mapping[str, Any], where: str, notes: list[str]) -> None:
        self._left = dict(values)
        self._where = where
        self._notes = notes

    def note(self, sentence: str) -> None:
        """Tell something about this mapping."""
        self._notes.append(f"{self._where}: {sentence}")

    def text(self, key: str) -> str:
        """A text on one line; empty when there is none."""
        value = self._left.pop(key, None)
        if value is None or value == "":
            return ""
        if not isinstance(value, str) or not value.isprintable() or len(value) > 4096:
            self.note(f"{key} is no text on one line, and was left out")
            return ""
        return value.strip()

    def texts(self, key: str) -> list[str]:
        """A list of texts."""
        value = self._left.pop(key, None)
        if value is None:
            return []
        good = (
            [item for item in value if isinstance(item, str) and item.isprintable() and item]
            if isinstance(value, list)
            else []
        )
        if not isinstance(value, list) or len(good) < len(value):
            self.note(f"{key} is not all texts; what is none was left out")
        return good

    def whole(self, key: str) -> int | None:
        """A whole number. ``true`` and ``false`` are what the kt command line makes of 1 and 0."""
        value = self._left.pop(key, None)
        if value is None:
            return None
        if isinstance(value, bool):
            self.note(f"{key} is {str(value).lower()}, which kt makes of {int(value)}; {int(value)} is taken")
            return int(value)
        if isinstance(value, str) and value.strip().isdecimal() and len(value) < 16:
            return int(value)
        if not isinstance(value, int) or abs(value) >= 1 << 53:
            self.note(f"{key} is no whole number, and was left out")
            return None
        return value

    def number(self, key: str) -> float | None:
        """A number."""
        value = self._left.pop(key, None)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            self.note(f"{key} is no number, and was left out")
            return None
        return float(value)

    def mapping(self, key: str) -> dict[str, Any]:
        """A mapping."""
        value = self._left.pop(key, None)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.note(f"{key} is no mapping, and was left out")
            return {}
        return value

    def drop(self, keys: Iterable[str]) -> None:
        """Leave out what kt-tui finds out by itself; nothing is lost, so nothing is told."""
        for key in keys:
            self._left.pop(key, None)

    def pop(self, key: str) -> Any:
        """A value as it is; None when there is none."""
        return self._left.pop(key, None)

    def rest(self) -> None:
        """Tell what is left: it means nothing here."""
        filled = [key for key, value in self._left.items() if value not in (None, "", [], {})]
        if filled:
            self.note(
                f"{', '.join(filled)} {'have' if len(filled) > 1 else 'has'} no meaning here, and was left out"
            )
        self._left.clear()
