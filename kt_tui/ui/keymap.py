"""Keys as terminals send them, and the user's own choice of keys."""

from __future__ import annotations

from typing import cast

from textual._ansi_sequences import ANSI_SEQUENCES_KEYS

from kt_tui.config import Config

KEYS = "keys."


def read_alt_digits_as_alt() -> None:
    """Make Escape-and-digit, which terminals send for alt+digit, arrive as that.

    Textual 8.2.8 reads it as what macOS types for option+digit (``alt+4`` as a cent sign). A Mac whose option key
    types characters sends the characters themselves, so that nothing is lost.
    """
    for digit in "0123456789":
        cast("dict[str, object]", ANSI_SEQUENCES_KEYS).pop(f"\x1b{digit}", None)


def user_keys(config: Config) -> dict[str, str]:
    """The bindings that the user moved to other keys: binding id -> keys, from ``[keys]`` of the settings."""
    return {
        key.removeprefix(KEYS): str(setting.value)
        for key, setting in config.settings.items()
        if key.startswith(KEYS)
    }
