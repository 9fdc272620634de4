"""Big pastes stand in the composer as one short mark each, and go out whole."""

from __future__ import annotations

from kt_tui.ui.figures import size

FOLD_CHARACTERS = 8_000
FOLD_LINES = 100


def plain_line_ends(text: str) -> str:
    """Terminals paste carriage returns; a message has newlines."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


class Pastes:
    """The folded pastes of one message."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def fold(self, text: str) -> str:
        """What to insert for a paste: the text itself, or a mark for a big one."""
        lines = text.count("\n") + 1
        if len(text) <= FOLD_CHARACTERS and lines <= FOLD_LINES:
            return text
        mark = (
            f"[paste {len(self._texts) + 1}: {lines:,} lines, {size(len(text.encode('utf-8', 'replace')))}]"
        )
        self._texts[mark] = text
        return mark

    def expand(self, text: str) -> str:
        """The message with every mark replaced by what was pasted."""
        for mark, pasted in self._texts.items():
            text = text.replace(mark, pasted)
        return text

    def clear(self) -> None:
        """Forgets them, after sending."""
        self._texts.clear()
