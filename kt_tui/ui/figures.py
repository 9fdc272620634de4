"""Numbers as people read them. Sizes are binary (GiB), because memory is."""

from __future__ import annotations

import math

UNKNOWN = "n/a"

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(count: float | None) -> str:
    """Bytes with three significant digits at least: ``343 MiB``, ``6.25 GiB``, ``1024 GiB`` stays ``1.00 TiB``."""
    if count is None or math.isnan(count):
        return UNKNOWN
    value, unit = abs(float(count)), 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    sign = "-" if count < 0 else ""
    if unit == 0:
        return f"{sign}{value:.0f} B"
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{sign}{value:.{digits}f} {_UNITS[unit]}"


def duration(seconds: float | None) -> str:
    """A span of time in its two largest units: ``8 s``, ``12 min``, ``3 h 05 min``, ``2 d 4 h``."""
    if seconds is None or seconds < 0:
        return UNKNOWN
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def rate(value: float | None) -> str:
    """Tokens a second: ``18.4 tok/s``, ``212 tok/s``."""
    if value is None:
        return f"{UNKNOWN} tok/s"
    return f"{value:.0f} tok/s" if value >= 100 else f"{value:.1f} tok/s"


def percent(share: float | None) -> str:
    """A share (0..1) in percent, right-aligned to four characters."""
    return UNKNOWN if share is None else f"{share * 100:3.0f}%"


def plural(count: int, noun: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def ids(numbers: tuple[int, ...]) -> str:
    """Sorted numbers with runs joined, as the kernel writes CPU lists: ``0-3,8``."""
    runs: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def stopped(text: str) -> str:
    """``text`` with a full stop."""
    text = text.strip()
    return text if not text or text[-1] in ".!?…" else f"{text}."


def sentence(text: str) -> str:
    """``text`` with a capital letter and a full stop."""
    text = stopped(text)
    return text[:1].upper() + text[1:]
