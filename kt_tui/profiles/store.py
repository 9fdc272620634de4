"""The folder of profiles: list, load, save, delete."""

from __future__ import annotations

import contextlib
import difflib
import re
import unicodedata
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kt_tui.errors import KtError
from kt_tui.paths import Paths
from kt_tui.profiles.document import check_values, fill, profile_from_toml, version_of
from kt_tui.profiles.migrate import SCHEMA_VERSION, migrate
from kt_tui.profiles.profile import Profile, ProfileError, UnknownProfile
from kt_tui.tomlfile import edit_toml, locked_folder, open_secret, parse, read_text, reason, sync_folder

SUFFIX = ".toml"
_NAME = re.compile(r"\w[\w.+-]*")
_MAX_NAME_BYTES = 120


@dataclass(frozen=True)
class ProfileList:
    """The readable profiles by name, and what is wrong with the others."""

    profiles: tuple[Profile, ...]
    notes: tuple[str, ...] = ()


def list_profiles(paths: Paths) -> ProfileList:
    """All profiles, sorted by name. A broken file becomes a note, never an error."""
    profiles, notes = [], []
    try:
        for name in _names(paths):
            try:
                profiles.append(profile := load_profile(paths, name))
                notes += [f"{name}: {note}" for note in profile.notes]
            except KtError as error:
                notes.append(str(error))
    except OSError as error:
        notes.append(f"cannot read {paths.profiles}: {reason(error)}")
    return ProfileList(tuple(profiles), tuple(notes))


def load_profile(paths: Paths, name: str) -> Profile:
    """One profile.

    Raises:
        UnknownProfile: There is none of that name (near misses are named).
        ProfileError: Its file lacks something.
        FileError: The file cannot be read, or is no TOML (with line and column).
    """
    path = profile_path(paths, name)
    text = read_text(path)
    if text is None:
        raise _no_such(paths, name)
    profile = profile_from_toml(name, text, path)
    exposed = open_secret(path, parse(text, path))
    return replace(profile, notes=(*profile.notes, exposed)) if exposed else profile


def save_profile(paths: Paths, profile: Profile, *, overwrite: bool = False) -> Path:
    """Write a profile (mode 0600). Keeps comments and unknown keys of a file that it overwrites.

    A profile without a date gets the present one. A file of an earlier schema version is brought to the present one,
    and what it held is kept beside it as ``NAME.toml.v1.bak``.

    Raises:
        ProfileError: The name is not allowed or taken, a value cannot be kept, or the file was written by a newer
            version.
        FileError: The file cannot be written.
    """
    path = profile_path(paths, profile.name)
    check_values(profile)
    if profile.created is None:
        profile = replace(profile, created=datetime.now(UTC).replace(microsecond=0))

    def change(document: MutableMapping[str, Any]) -> None:
        if document and not overwrite:
            raise ProfileError(f"there is a profile {profile.name!r} already; take another name or --force")
        version = version_of(document, path)
        if version > SCHEMA_VERSION:
            raise ProfileError(
                f"{path} was written by a newer kt-tui (schema {version}); it is left as it is"
            )
        migrate(document, version)
        fill(document, profile)

    def backup(document: Mapping[str, Any]) -> str:
        version = version_of(document, path)
        return f".v{version}.bak" if version < SCHEMA_VERSION else ""

    edit_toml(path, change, backup=backup)
    return path


def delete_profile(paths: Paths, name: str) -> None:
    """Remove a profile.

    Raises:
        ProfileError: There is none, or it cannot be removed.
    """
    path = profile_path(paths, name)
    try:
        with locked_folder(path.parent):
            path.unlink()
            sync_folder(path.parent)
    except FileNotFoundError:
        raise _no_such(paths, name) from None
    except OSError as error:
        raise ProfileError(f"cannot delete {path}: {reason(error)}") from error


def profile_path(paths: Paths, name: str) -> Path:
    """Where a profile lies. Raises `ProfileError` for a name that is none."""
    problem = name_problem(name)
    if problem:
        raise ProfileError(problem)
    return paths.profiles / (unicodedata.normalize("NFC", name) + SUFFIX)


def name_problem(name: str) -> str | None:
    """Why a text cannot name a profile; None when it can. A name is a file name and never a path."""
    name = unicodedata.normalize("NFC", name)
    if not _NAME.fullmatch(name) or name.lower().endswith(SUFFIX):
        shown = "".join(letter if letter.isprintable() else "?" for letter in name[:60])
        return f"{shown!r} cannot name a profile: use letters, digits and . _ + -, beginning with a letter or digit"
    if len(name.encode()) > _MAX_NAME_BYTES:
        return f"the profile name is too long ({len(name.encode())} of at most {_MAX_NAME_BYTES} bytes)"
    return None


def _names(paths: Paths) -> list[str]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        found = [entry.stem for entry in paths.profiles.iterdir() if entry.suffix == SUFFIX]
        return sorted(name for name in found if name_problem(name) is None)
    return []


def _no_such(paths: Paths, name: str) -> UnknownProfile:
    names = []
    with contextlib.suppress(OSError):
        names = _names(paths)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else f"; there is {', '.join(names)}" if names else ""
    return UnknownProfile(f"there is no profile {name!r}{hint}")
