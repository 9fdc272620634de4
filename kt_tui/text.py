"""Text that others wrote (models, logs, files) made safe to show in a terminal."""

from __future__ import annotations

import re

# C0 without tab and newline, DEL, C1, the line and paragraph separators, the bidirectional embeddings, overrides
# and isolates (Unicode UAX #9: they can make "rm exe.fdp" read as something else), and lone surrogates, which no
# terminal encoding can carry.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

# ECMA-48: CSI, the string sequences (OSC, DCS, SOS, PM, APC, ended by ST or BEL), two-byte escapes.
_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]+[0-~]"
    r"|\x1b[0-OQ-WYZ\\`-~]"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def clean_text(text: str) -> str:
    r"""``text`` with everything that could steer a terminal written out visibly (``\x1b``, ``\u202e``).

    Newlines and tabs stay; ``\r\n`` and a lone ``\r`` become ``\n``. Printable characters, among them joiners
    and combining marks, are untouched, so that ordinary text comes back as it went in.
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _UNSAFE.sub(_visible, text)


def strip_sequences(text: str) -> str:
    """``text`` without complete terminal control sequences (colours, cursor moves, titles), as for log lines."""
    if "\x1b" not in text and "\x9b" not in text:
        return text
    return _SEQUENCE.sub("", text)


def one_line(text: str, limit: int = 200) -> str:
    """``text`` cleaned, on one line, at most ``limit`` characters (an ellipsis marks a cut)."""
    flat = " ".join(clean_text(text[: limit * 4]).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def share(value: object) -> float | None:
    """A progress between 0 and 1 from something that came from outside, or None."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0.0 <= number <= 1.0 else None
