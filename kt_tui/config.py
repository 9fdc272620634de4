"""``config.toml``: read with the origin of every value, changed one key at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kt_tui.paths import Paths


@dataclass(frozen=True)
class Setting:
    """A value and where it comes from: ``default``, ``config`` or ``environment``."""

    value: object
    origin: str


@dataclass(frozen=True)
class Config:
    """The settings in force. Immutable: after `set_value`, load again.

    Attributes:
        path: The user's file, whether it exists or not.
        settings: Every key of the schema, and every ``launch.*`` key of the file.
        notes: What is wrong with the file, one sentence each, with line and column.
    """

    path: Path
    settings: Mapping[str, Setting] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def get(self, key: str) -> object:
        """The value of a dotted key (``server.port``). KeyError for a key that the schema does not have."""
        return self.settings[key].value

    def origin(self, key: str) -> str:
        """Where the value comes from: ``default``, ``config`` or ``environment``."""
        return self.settings[key].origin

    def launch_options(self) -> dict[str, object]:
        """The file's ``launch.*`` values by option name (``{"cpu-threads": 16}``)."""
        prefix = "launch."
        return {k.removeprefix(prefix): s.value for k, s in self.settings.items() if k.startswith(prefix)}


def load_config(paths: Paths, environ: Mapping[str, str]) -> Config:
    """The settings: defaults, then the user's file, then ``KT_TUI_*`` variables. Never raises."""
    raise NotImplementedError


def set_value(paths: Paths, key: str, text: str) -> object:
    """Write one key into the user's file, as typed by a user; gives the value written.

    Raises:
        UsageError: No such key, or the text is no value for it.
        KtError: The file is invalid, read-only or cannot be written; it is then left as it was.
    """
    raise NotImplementedError
