"""Profiles as TOML: reading one, filling one in, writing one to hand to someone else."""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kt_tui.profiles.migrate import SCHEMA_VERSION, migrate
from kt_tui.profiles.profile import ENGINES, Conditions, Profile, ProfileError
from kt_tui.secret import is_secret, masked_arguments
from kt_tui.tomlfile import parse

_KIND_NAMES = {str: "text", dict: "table", datetime: "date and time", list: "list"}
_SCALARS = (str, int, float, bool)


def profile_from_toml(name: str, text: str, path: Path) -> Profile:
    """A profile from the text of its file, of this schema version or an earlier one; unknown keys are ignored.

    Raises:
        ProfileError: It lacks something, or a value is of the wrong type.
        TomlError: It is no TOML (with line and column).
    """
    document = parse(text, path)
    version = version_of(document, path)
    notes = migrate(document, version)
    if version > SCHEMA_VERSION:
        notes.append(
            f"written by a newer kt-tui (schema {version}): what this one does not know is left out, and it "
            "cannot be changed here"
        )

    def take(table: Mapping[str, Any], key: str, kind: type, default: Any) -> Any:
        value = table.get(key, default)
        if value is not default and not isinstance(value, kind):
            raise ProfileError(f"{path}: {key} must be a {_KIND_NAMES[kind]}; correct it by hand")
        return value

    model = take(document, "model", str, None)
    if not model:
        raise ProfileError(f'{path}: model is missing; add a line like model = "demo"')
    options = take(document, "options", dict, {})
    for option, value in options.items():
        if type(value) not in _SCALARS:
            raise ProfileError(f"{path}: option {option} must be text, a number, true or false")
    engine = take(document, "engine", str, None)
    if engine is not None and engine not in ENGINES:
        raise ProfileError(f"{path}: engine must be one of {', '.join(ENGINES)}, not {engine!r}")
    created = take(document, "created", datetime, None)
    conditions = take(document, "conditions", dict, {})
    return Profile(
        name=name,
        model=model,
        engine=engine,
        options=options,
        created=created if created is None or created.tzinfo else created.replace(tzinfo=UTC),
        note=take(document, "note", str, ""),
        measured=_scalars(take(document, "measured", dict, {})),
        extra=tuple(str(item) for item in take(document, "extra", list, [])),
        conditions=Conditions(
            take(conditions, "hardware", str, ""),
            _scalars(take(conditions, "machine", dict, {})),
            take(conditions, "model", str, ""),
        ),
        notes=tuple(notes),
    )


def version_of(document: Mapping[str, Any], path: Path) -> int:
    """The schema version of a document; one that says nothing is of the present version.

    Raises:
        ProfileError: It is no version.
    """
    version = document.get("schema_version", SCHEMA_VERSION)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ProfileError(f"{path}: schema_version must be a whole number of at least 1, not {version!r}")
    return int(version)


def export_text(profile: Profile) -> str:
    """The profile as TOML to hand to someone else; what holds secrets is left out, and a comment names it."""
    import tomlkit

    document = tomlkit.document()
    public = {name: value for name, value in profile.options.items() if not is_secret(name)}
    extra, left_out = _without_secrets(profile.extra)
    left_out = [f"--{name}" for name in profile.options if name not in public] + left_out
    if left_out:
        document.add(tomlkit.comment(f"left out, since they hold secrets: {', '.join(left_out)}"))
    fill(document, replace(profile, options=public, extra=tuple(extra)))
    return tomlkit.dumps(document)


def _without_secrets(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments without secret options and their values, and the names of those options."""
    kept: list[str] = []
    names: list[str] = []
    for argument, shown in zip(arguments, masked_arguments(arguments), strict=True):
        name = argument.partition("=")[0]
        if argument.startswith("--") and is_secret(name):
            names.append(name)
        elif shown == argument:
            kept.append(argument)
    return kept, names


def check_values(profile: Profile) -> None:
    """Raises `ProfileError` for what a file cannot keep."""
    if not profile.model:
        raise ProfileError("a profile needs a model")
    if profile.engine is not None and profile.engine not in ENGINES:
        raise ProfileError(f"engine must be one of {', '.join(ENGINES)}, not {profile.engine!r}")
    for name, value in {**profile.options, **profile.measured, **profile.conditions.machine}.items():
        if type(value) not in _SCALARS or (isinstance(value, float) and not math.isfinite(value)):
            raise ProfileError(
                f"{name} cannot be kept in a profile: it must be text, a number, true or false"
            )


def fill(document: MutableMapping[str, Any], profile: Profile) -> None:
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
    conditions = profile.conditions
    known = {"hardware": conditions.hardware, "model": conditions.model, "machine": conditions.machine}
    _set_table(document, "conditions", {name: value for name, value in known.items() if value})


def _scalars(table: Mapping[str, Any]) -> dict[str, object]:
    """What of a table can be shown and kept; a date becomes its text."""
    plain = {key: value.isoformat() if isinstance(value, datetime) else value for key, value in table.items()}
    return {key: value for key, value in plain.items() if type(value) in _SCALARS}


def _set(document: MutableMapping[str, Any], key: str, value: object | None) -> None:
    if value is None:
        document.pop(key, None)
    elif isinstance(value, Mapping):
        _set_table(document, key, value)
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
        styled = hasattr(document, "as_string")
        document[key] = tomlkit.table() if styled else {}
        table = document[key]
    for gone in [name for name in table if name not in values]:
        table.pop(gone)
    for name, value in values.items():
        _set(table, name, value)
