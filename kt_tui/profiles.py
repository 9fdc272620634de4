"""Named launches: one ``config/profiles/NAME.toml`` each."""

from __future__ import annotations

import contextlib
import difflib
import math
import re
import unicodedata
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kt_tui.errors import KtError
from kt_tui.paths import Paths
from kt_tui.settings import is_secret
from kt_tui.tomlfile import edit_toml, locked_folder, parse, read_text, reason, sync_folder

SCHEMA_VERSION = 1
SUFFIX = ".toml"
MASK = "(hidden)"
ENGINES = ("embedded", "sglang")
_NAME = re.compile(r"\w[\w.+-]*")
_MAX_NAME_BYTES = 120


class ProfileError(KtError):
    """A profile that is not there, cannot be read or cannot be written."""


class UnknownProfile(ProfileError):
    """No profile of that name, as no model of a name (exit code 2)."""

    exit_code = 2


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
        return {
            "name": self.name,
            "model": self.model,
            "engine": self.engine,
            "options": {name: MASK if is_secret(name) else value for name, value in self.options.items()},
            "created": self.created.isoformat() if self.created else None,
            "note": self.note,
            "measured": dict(self.measured),
            "extra": masked_arguments(self.extra),
        }

    def run_arguments(self) -> list[str]:
        """The arguments after ``kt-tui`` that launch it."""
        return ["run", self.model, "--profile", self.name]


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
                profiles.append(load_profile(paths, name))
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
    return profile_from_toml(name, text, path)


def profile_from_toml(name: str, text: str, path: Path) -> Profile:
    """A profile from the text of its file. Raises as `load_profile` does; unknown keys are ignored."""
    document = parse(text, path)
    version = document.get("schema_version", SCHEMA_VERSION)
    if type(version) is not int or version < 1:
        raise ProfileError(f"{path}: schema_version must be a whole number of at least 1, not {version!r}")

    def take(key: str, kind: type, default: Any) -> Any:
        value = document.get(key, default)
        if value is not default and not isinstance(value, kind):
            raise ProfileError(f"{path}: {key} must be a {_KIND_NAMES[kind]}; correct it by hand")
        return value

    model = take("model", str, None)
    if not model:
        raise ProfileError(f'{path}: model is missing; add a line like model = "demo"')
    options = take("options", dict, {})
    for option, value in options.items():
        if type(value) not in (str, int, float, bool):
            raise ProfileError(f"{path}: option {option} must be text, a number, true or false")
    engine = take("engine", str, None)
    if engine is not None and engine not in ENGINES:
        raise ProfileError(f"{path}: engine must be one of {', '.join(ENGINES)}, not {engine!r}")
    created = take("created", datetime, None)
    return Profile(
        name=name,
        model=model,
        engine=engine,
        options=options,
        created=created if created is None or created.tzinfo else created.replace(tzinfo=UTC),
        note=take("note", str, ""),
        measured=take("measured", dict, {}),
        extra=tuple(str(item) for item in take("extra", list, [])),
    )


_KIND_NAMES = {str: "text", dict: "table", datetime: "date and time", list: "list"}


def save_profile(paths: Paths, profile: Profile, *, overwrite: bool = False) -> Path:
    """Write a profile (mode 0600). Keeps comments and unknown keys of a file that it overwrites.

    A profile without a date gets the present one.

    Raises:
        ProfileError: The name is not allowed or taken, a value cannot be kept, or the file was written by a newer
            version.
        FileError: The file cannot be written.
    """
    path = profile_path(paths, profile.name)
    _check_values(profile)
    if profile.created is None:
        profile = replace(profile, created=datetime.now(UTC).replace(microsecond=0))

    def change(document: MutableMapping[str, Any]) -> None:
        if document and not overwrite:
            raise ProfileError(f"there is a profile {profile.name!r} already; take another name or --force")
        version = document.get("schema_version", SCHEMA_VERSION)
        if not isinstance(version, int) or version > SCHEMA_VERSION:
            raise ProfileError(
                f"{path} was written by a newer kt-tui (schema {version}); it is left as it is"
            )
        _fill(document, profile)

    secret = any(map(is_secret, profile.options)) or masked_arguments(profile.extra) != list(profile.extra)
    edit_toml(path, change, private=secret)
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


def export_text(profile: Profile) -> str:
    """The profile as TOML to hand to someone else; options that hold secrets are left out."""
    import tomlkit

    document = tomlkit.document()
    public = {name: value for name, value in profile.options.items() if not is_secret(name)}
    _fill(document, replace(profile, options=public, extra=tuple(masked_arguments(profile.extra))))
    return tomlkit.dumps(document)


def masked_arguments(arguments: Sequence[str]) -> list[str]:
    """Engine arguments with the values of secret options (``--api-key X``, ``--api-key=X``) hidden."""
    shown: list[str] = []
    hide_next = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if hide_next and not argument.startswith("--"):
            shown.append(MASK)
            hide_next = False
            continue
        hide_next = name.startswith("--") and is_secret(name) and not equals
        shown.append(f"{name}={MASK}" if equals and name.startswith("--") and is_secret(name) else argument)
    return shown


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


def _check_values(profile: Profile) -> None:
    if not profile.model:
        raise ProfileError("a profile needs a model")
    if profile.engine is not None and profile.engine not in ENGINES:
        raise ProfileError(f"engine must be one of {', '.join(ENGINES)}, not {profile.engine!r}")
    for name, value in {**profile.options, **profile.measured}.items():
        if type(value) not in (str, int, float, bool) or (
            isinstance(value, float) and not math.isfinite(value)
        ):
            raise ProfileError(
                f"{name} cannot be kept in a profile: it must be text, a number, true or false"
            )


def _fill(document: MutableMapping[str, Any], profile: Profile) -> None:
    """Write a profile's fields into a document, old options out, all else untouched."""
    values = {
        "schema_version": SCHEMA_VERSION,
        "model": profile.model,
        "engine": profile.engine,
        "created": profile.created,
        "note": profile.note or None,
        "extra": list(profile.extra) or None,
    }
    for key, value in values.items():
        _set(document, key, value)
    _set_table(document, "options", profile.options)
    _set_table(document, "measured", profile.measured)


def _set(document: MutableMapping[str, Any], key: str, value: object | None) -> None:
    if value is None:
        document.pop(key, None)
    elif key not in document or not _alike(document[key], value):
        document[key] = value


def _alike(old: object, new: object) -> bool:
    """Equal and of one type; 1, 1.0 and true differ in TOML."""
    return old == new and all(isinstance(old, kind) == isinstance(new, kind) for kind in (bool, float))


def _set_table(document: MutableMapping[str, Any], key: str, values: Mapping[str, object]) -> None:
    import tomlkit

    table = document.get(key)
    if not isinstance(table, MutableMapping):
        document.pop(key, None)
        if not values:
            return
        document[key] = tomlkit.table() if isinstance(document, tomlkit.TOMLDocument) else {}
        table = document[key]
    for gone in [name for name in table if name not in values]:
        table.pop(gone)
    for name, value in values.items():
        _set(table, name, value)
