"""``config.toml``: read with the origin of every value, changed one key at a time."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kt_tui.errors import UsageError
from kt_tui.paths import Paths, path_notes, shipped
from kt_tui.settings import (
    KEYS,
    LAUNCH,
    Key,
    known_key,
    normal,
    parse_text,
    problem_of,
    suggestion,
)
from kt_tui.tomlfile import FileError, edit_toml, locate, open_secret, parse, read_text, write_protection

SHIPPED_NAME = "config.toml"


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
        notes: What is wrong with the file or a variable, one sentence each; with line and column for the file.
        read_only: Why changes cannot be saved now; None when they can.
    """

    path: Path
    settings: Mapping[str, Setting] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    read_only: str | None = None

    def get(self, key: str) -> object:
        """The value of a dotted key (``server.port``). KeyError for a key that the schema does not have."""
        return self.settings[key].value

    def text(self, key: str) -> str:
        """The value of a key that holds text."""
        return str(self.settings[key].value)

    def whole(self, key: str) -> int:
        """The value of a key that holds a whole number."""
        value = self.settings[key].value
        if type(value) is not int:
            raise TypeError(f"{key} is no whole number")
        return value

    def number(self, key: str) -> float:
        """The value of a key that holds a number."""
        value = self.settings[key].value
        if not isinstance(value, (int, float)):
            raise TypeError(f"{key} is no number")
        return float(value)

    def origin(self, key: str) -> str:
        """Where the value comes from: ``default``, ``config`` or ``environment``."""
        return self.settings[key].origin

    def model_folders(self) -> tuple[Path, ...]:
        """``paths.models`` with ``~`` expanded."""
        value = self.settings["paths.models"].value
        return tuple(Path(str(folder)).expanduser() for folder in value) if isinstance(value, tuple) else ()

    def launch_options(self) -> dict[str, object]:
        """The file's ``launch.*`` values by option name (``{"cpu-threads": 16}``)."""
        return {k.removeprefix(LAUNCH): s.value for k, s in self.settings.items() if k.startswith(LAUNCH)}


def load_config(paths: Paths, environ: Mapping[str, str]) -> Config:
    """The settings: defaults, then the user's file, then ``KT_TUI_*`` variables.

    Never raises: whatever cannot be read or is no right value falls back, key by key, and becomes a note.
    """
    path = paths.config_file
    settings = {key.name: Setting(key.default, "default") for key in KEYS}
    notes: list[str] = []
    read_only = write_protection(path)
    try:
        text = read_text(path)
        document = {} if text is None else parse(text, path)
    except FileError as problem:
        text, document = None, {}
        notes.append(f"{problem}; the defaults are used and the file is left as it is")
        read_only = str(problem)
    for name, value in _flat(document):
        problem_text = _take(settings, name, value)
        if problem_text:
            notes.append(f"{_where(path, text or '', name)}: {problem_text}")
    if exposed := open_secret(path, document):
        notes.append(exposed)
    for key in KEYS:
        _take_variable(settings, notes, key, environ)
    notes += path_notes(environ)
    return Config(path, settings, tuple(notes), read_only)


def set_value(paths: Paths, key: str, text: str) -> object:
    """Write one key into the user's file, as typed by a user.

    Only this key changes; a file that does not exist yet begins as a copy of the commented default.

    Returns:
        The value written.

    Raises:
        UsageError: No such key, or the text is no value for it.
        FileError: The file is invalid, read-only or cannot be written; it is then left as it was.
    """
    entry = known_key(key)
    value = parse_text(entry, text)
    edit_toml(paths.config_file, lambda document: _assign(document, key, value), template=default_text())
    return normal(entry, value)


def unset_value(paths: Paths, key: str) -> bool:
    """Take one key out of the user's file, so that its default holds; False when it was not there.

    Raises:
        UsageError: No such key.
        FileError: As for `set_value`.
    """
    known_key(key)
    if not paths.config_file.exists():
        return False
    removed: list[bool] = []
    edit_toml(paths.config_file, lambda document: removed.append(_remove(document, key)))
    return any(removed)


def default_text() -> str:
    """The shipped, commented default configuration; empty when the installation lacks it."""
    try:
        return shipped(SHIPPED_NAME).read_text(encoding="utf-8")
    except OSError:
        return ""


def _take(settings: dict[str, Setting], name: str, value: object) -> str | None:
    """Enter a value of the file; returns what is wrong with it, if anything."""
    try:
        key = known_key(name)
    except UsageError:
        return f"unknown setting {name}, kept but not used{suggestion(name)}"
    if problem := problem_of(key, value):
        default = "" if key.default is None else f"; {key.default!r} is used"
        return problem + default
    settings[name] = Setting(normal(key, value), "config")
    return None


def _take_variable(
    settings: dict[str, Setting], notes: list[str], key: Key, environ: Mapping[str, str]
) -> None:
    text = environ.get(key.environ, "") if key.environ else ""
    if not text:
        return
    try:
        settings[key.name] = Setting(normal(key, parse_text(key, text)), "environment")
    except UsageError as error:
        notes.append(f"the variable {key.environ} is not used: {error}")


def _flat(document: Mapping[str, Any], prefix: str = "", depth: int = 0) -> list[tuple[str, object]]:
    """Dotted names and values; a table is descended into, so an empty one has no names."""
    pairs: list[tuple[str, object]] = []
    for name, value in document.items():
        if isinstance(value, dict) and depth < 8:
            pairs += _flat(value, f"{prefix}{name}.", depth + 1)
        else:
            pairs.append((prefix + name, value))
    return pairs


def _where(path: Path, text: str, name: str) -> str:
    place = locate(text, tuple(name.split(".")))
    return f"{path}:{place[0]}:{place[1]}" if place else str(path)


def _assign(document: MutableMapping[str, Any], key: str, value: object) -> None:
    import tomlkit

    *tables, last = key.split(".")
    for name in tables:
        if name not in document:
            document[name] = tomlkit.table() if isinstance(document, tomlkit.TOMLDocument) else {}
        document = document[name]
        if not isinstance(document, MutableMapping):
            raise FileError(f"{name} is not a table in the configuration file; correct it by hand first")
    document[last] = value


def _remove(document: MutableMapping[str, Any], key: str) -> bool:
    *tables, last = key.split(".")
    for name in tables:
        inner = document.get(name)
        if not isinstance(inner, MutableMapping):
            return False
        document = inner
    return document.pop(last, None) is not None
