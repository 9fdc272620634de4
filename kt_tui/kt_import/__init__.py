"""Taking over what the ``kt`` command line keeps in ``~/.ktransformers``; its files are only read."""

from kt_tui.kt_import.folder import Found, Outcome, read_kt, take_over

__all__ = ["Found", "Outcome", "read_kt", "take_over"]
