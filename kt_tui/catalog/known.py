"""The catalogue's data: the shipped ``models.toml`` and the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from kt_tui.errors import KtError
from kt_tui.paths import Paths
from kt_tui.tomlfile import parse, read_text

SHIPPED = "models.toml"


@dataclass(frozen=True)
class Package:
    """A Python package that carries a model in one file."""

    name: str
    module: str
    file: str
    install: str
    sha256: str = ""


@dataclass(frozen=True)
class Builder:
    """A program of ours that makes a model, and the version of what it makes."""

    name: str
    recipe: int


@dataclass(frozen=True)
class KnownModel:
    """An entry of ``models.toml``; the file itself says what each field means."""

    name: str
    aliases: tuple[str, ...] = ()
    description: str = ""
    family: str | None = None
    format: str | None = None
    bytes: int | None = None
    repo: str = ""
    licence: str = ""
    notes: tuple[str, ...] = ()
    defaults: Mapping[str, object] = field(default_factory=dict)
    builder: Builder | None = None
    package: Package | None = None
    path: Path | None = None


class CatalogueError(KtError):
    """An entry that makes no sense; names the file and the entry."""


def known_models(paths: Paths) -> tuple[list[KnownModel], list[str]]:
    """Shipped entries, then the user's; one of the user's replaces a shipped one of the same name.

    Returns:
        The entries, and what is wrong with the user's file, one sentence each.
    """
    source = resources.files("kt_tui.catalog").joinpath(SHIPPED)
    models, _ = _entries(parse(source.read_text(encoding="utf-8"), Path(str(source))), Path(str(source)))
    notes: list[str] = []
    try:
        text = read_text(paths.models_file)
        own, notes = _entries(parse(text or "", paths.models_file), paths.models_file)
    except KtError as error:
        own, notes = [], [f"{error}; your own models are not listed"]
    replaced = {model.name.casefold() for model in own}
    return [model for model in models if model.name.casefold() not in replaced] + own, notes


def _entries(document: Mapping[str, Any], path: Path) -> tuple[list[KnownModel], list[str]]:
    models, notes = [], []
    table = document.get("models", {})
    if not isinstance(table, dict):
        return [], [f"{path}: models must be tables such as [models.NAME]"]
    for name, entry in table.items():
        try:
            models.append(_entry(name, entry, path))
        except CatalogueError as error:
            notes.append(str(error))
    return models, notes


def _entry(name: str, entry: object, path: Path) -> KnownModel:
    def take(source: Mapping[str, Any], key: str, kind: type, default: Any) -> Any:
        value = source.get(key, default)
        if value is not default and (not isinstance(value, kind) or isinstance(value, bool)):
            raise CatalogueError(f"{path}: [models.{name}] {key} must be a {kind.__name__}")
        return value

    def texts(key: str) -> tuple[str, ...]:
        values = take(fields, key, list, [])
        if not all(isinstance(value, str) for value in values):
            raise CatalogueError(f"{path}: [models.{name}] {key} must be a list of texts")
        return tuple(values)

    if not isinstance(entry, dict):
        raise CatalogueError(f"{path}: [models.{name}] must be a table")
    fields: dict[str, Any] = entry
    if not name or not name.isprintable() or "/" in name:
        raise CatalogueError(f"{path}: {name!r} cannot name a model")
    builder, package = take(fields, "builder", dict, None), take(fields, "package", dict, None)
    location = take(fields, "path", str, None)
    return KnownModel(
        name=name,
        aliases=texts("aliases"),
        description=take(fields, "description", str, ""),
        family=take(fields, "family", str, None),
        format=take(fields, "format", str, None),
        bytes=take(fields, "bytes", int, None),
        repo=take(fields, "repo", str, ""),
        licence=take(fields, "licence", str, ""),
        notes=texts("notes"),
        defaults=take(fields, "defaults", dict, {}),
        builder=Builder(take(builder, "name", str, ""), take(builder, "recipe", int, 0)) if builder else None,
        package=Package(**{key: take(package, key, str, "") for key in _PACKAGE_KEYS}) if package else None,
        path=_absolute(location, path) if location else None,
    )


_PACKAGE_KEYS = ("name", "module", "file", "install", "sha256")


def _absolute(location: str, file: Path) -> Path:
    """A relative path in the user's file counts from that file's folder."""
    return file.parent / Path(location).expanduser()
