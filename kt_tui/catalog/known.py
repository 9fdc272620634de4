"""The catalogue's data: the shipped ``models.toml`` and the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from kt_tui.catalog.published import Published, published_of
from kt_tui.catalog.shape import BITS, ModelShape, ShapeError, shape_of_table
from kt_tui.errors import KtError
from kt_tui.paths import Paths
from kt_tui.tomlfile import locate, parse, read_text

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
    subfolder: str = ""
    parameters: int | None = None
    shape: ModelShape | None = None
    formats: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    published: tuple[Published, ...] = ()


class CatalogueError(KtError):
    """An entry that makes no sense; names the entry, and the key where one is at fault."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


def known_models(paths: Paths) -> tuple[list[KnownModel], list[str]]:
    """Shipped entries, then the user's; one of the user's replaces a shipped one of the same name.

    Returns:
        The entries, and what is wrong with the user's file, one sentence each.
    """
    source = resources.files("kt_tui.catalog").joinpath(SHIPPED)
    document = parse(source.read_text(encoding="utf-8"), Path(str(source)))
    shapes = document.get("shapes", {})
    models, problems = _entries(document, Path(str(source)), shapes)
    if problems:
        raise CatalogueError(f"{problems[0]}; this copy of kt-tui is damaged, install it again")
    notes: list[str] = []
    try:
        text = read_text(paths.models_file)
        document = parse(text or "", paths.models_file)
        own_shapes = document.get("shapes", {})
        shapes = {**shapes, **(own_shapes if isinstance(own_shapes, dict) else {})}
        own, notes = _entries(document, paths.models_file, shapes, text or "")
    except KtError as error:
        own, notes = [], [f"{error}; your own models are not listed"]
    replaced = {model.name.casefold() for model in own}
    return [model for model in models if model.name.casefold() not in replaced] + own, notes


def _entries(
    document: Mapping[str, Any], path: Path, shapes: Mapping[str, Any], text: str = ""
) -> tuple[list[KnownModel], list[str]]:
    models, notes = [], []
    table = document.get("models", {})
    if not isinstance(table, dict):
        return [], [f"{path}: models must be tables such as [models.NAME]"]
    for name, entry in table.items():
        try:
            models.append(_entry(name, entry, path, shapes))
        except CatalogueError as error:
            place = locate(text, ("models", name, error.key) if error.key else ("models", name))
            where = f"{path}:{place[0]}" if place else str(path)
            notes.append(f"{where}: {error}")
    return models, notes


def _entry(name: str, entry: object, path: Path, shapes: Mapping[str, Any]) -> KnownModel:
    def take(source: Mapping[str, Any], key: str, kind: type, default: Any) -> Any:
        value = source.get(key, default)
        if value is not default and (not isinstance(value, kind) or isinstance(value, bool)):
            raise CatalogueError(f"[models.{name}] {key} must be a {kind.__name__}", key)
        return value

    def texts(key: str) -> tuple[str, ...]:
        values = take(fields, key, list, [])
        if not all(isinstance(value, str) for value in values):
            raise CatalogueError(f"[models.{name}] {key} must be a list of texts", key)
        return tuple(values)

    if not isinstance(entry, dict):
        raise CatalogueError(f"[models.{name}] must be a table")
    fields: dict[str, Any] = entry
    if not name or not name.isprintable() or "/" in name:
        raise CatalogueError(f"{name!r} cannot name a model")
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
        subfolder=take(fields, "subfolder", str, ""),
        parameters=take(fields, "parameters", int, None),
        shape=_shape(name, fields.get("shape"), shapes),
        formats=_formats(name, take(fields, "formats", dict, {})),
        limits=_limits(name, take(fields, "limits", dict, {})),
        published=_published(name, fields.get("published", [])),
    )


def _shape(name: str, value: object, shapes: Mapping[str, Any]) -> ModelShape | None:
    """A shape given as a table, or by the name of one under ``[shapes]``."""
    if value is None:
        return None
    table = shapes.get(value) if isinstance(value, str) else value
    if not isinstance(table, dict):
        raise CatalogueError(f"[models.{name}] shape must be a table or the name of one in [shapes]", "shape")
    try:
        return shape_of_table(table)
    except ShapeError as error:
        raise CatalogueError(f"[models.{name}] shape: {error}", "shape") from error


def _formats(name: str, value: Mapping[str, Any]) -> Mapping[str, str]:
    if not set(value) <= {"experts", "other"} or not all(
        isinstance(item, str) and item in BITS for item in value.values()
    ):
        raise CatalogueError(
            f"[models.{name}] formats are experts and other, each one of {', '.join(BITS)}", "formats"
        )
    return value


def _limits(name: str, value: Mapping[str, Any]) -> Mapping[str, int]:
    if not all(type(item) is int and item > 0 for item in value.values()):
        raise CatalogueError(f"[models.{name}] limits must be whole numbers above 0", "limits")
    return value


def _published(name: str, value: object) -> tuple[Published, ...]:
    try:
        return published_of(value)
    except ValueError as error:
        raise CatalogueError(f"[models.{name}] published {error}", "published") from error


_PACKAGE_KEYS = ("name", "module", "file", "install", "sha256")


def _absolute(location: str, file: Path) -> Path:
    """A relative path in the user's file counts from that file's folder."""
    return file.parent / Path(location).expanduser()
