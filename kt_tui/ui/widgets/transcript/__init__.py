"""The transcript: a conversation drawn row by row, cheap however long it is and however fast it grows."""

from kt_tui.ui.widgets.transcript.entries import Answer, Entry, Kind
from kt_tui.ui.widgets.transcript.view import Transcript

__all__ = ["Answer", "Entry", "Kind", "Transcript"]
