"""Named launches: one ``config/profiles/NAME.toml`` each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from kt_tui.errors import KtError
from kt_tui.paths import Paths

SCHEMA_VERSION = 1


class ProfileError(KtError):
    """A profile that is not there, cannot be read or cannot be written."""


@dataclass(frozen=True)
class Profile:
    """A launch to come back to.

    Attributes:
        name: File name without ``.toml``.
        model: Model name or path.
        engine: ``embedded`` or ``sglang``; None leaves the choice open.
        options: Launch option (long name without dashes) -> value, only those that the user set.
        created: When it was saved (UTC).
        note: The user's own words.
        measured: Facts of a launch that worked, by name (``tokens_per_s``); empty when none.
        extra: Options for the engine that kt-tui does not know, as typed.
    """

    name: str
    model: str
    engine: str | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    created: datetime | None = None
    note: str = ""
    measured: Mapping[str, object] = field(default_factory=dict)
    extra: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The profile as the ``profile`` command prints it; secrets masked."""
        raise NotImplementedError


@dataclass(frozen=True)
class ProfileList:
    """The readable profiles by name, and what is wrong with the others."""

    profiles: tuple[Profile, ...]
    notes: tuple[str, ...] = ()


def list_profiles(paths: Paths) -> ProfileList:
    """All profiles, sorted by name. A broken file becomes a note, never an error."""
    raise NotImplementedError


def load_profile(paths: Paths, name: str) -> Profile:
    """One profile. Raises `ProfileError` with near misses, or with line and column for a broken file."""
    raise NotImplementedError


def save_profile(paths: Paths, profile: Profile, *, overwrite: bool = False) -> Path:
    """Write a profile (mode 0600). Keeps comments and unknown keys of a file that it overwrites."""
    raise NotImplementedError


def delete_profile(paths: Paths, name: str) -> None:
    """Remove a profile. Raises `ProfileError` when there is none."""
    raise NotImplementedError
