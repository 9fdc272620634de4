"""From what a user typed to a model."""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from kt_tui.catalog.entry import ModelEntry, ModelState, UnknownModel
from kt_tui.catalog.inspect import Inspection, inspect_path
from kt_tui.catalog.known import KnownModel, known_models
from kt_tui.catalog.manifest import ManifestError, read_manifest, size_problems
from kt_tui.catalog.shape import checkpoint_bytes
from kt_tui.config import Config
from kt_tui.paths import Paths

_MAX_FOUND = 500


def list_models(paths: Paths, config: Config) -> list[ModelEntry]:
    """Every known model and every checkpoint directly inside the folders of ``paths.models``.

    Known ones first, in the catalogue's order; then the others by name. Reads headers only.
    """
    known, _ = known_models(paths)
    entries = [entry_of(model, paths) for model in known]
    taken = {name.casefold() for entry in entries for name in (entry.name, *entry.aliases)}
    listed = {entry.path for entry in entries}
    found = []
    for path in _candidates(config.model_folders()):
        if path in listed:
            continue
        entry = _entry_of_path(path)
        if entry.state is ModelState.WRONG and entry.format is None and not (path / "config.json").exists():
            continue
        name = path.name if path.name.casefold() not in taken else str(path)
        taken.add(name.casefold())
        found.append(replace(entry, name=name))
    return entries + sorted(found, key=lambda entry: entry.name.casefold())


def catalogue_notes(paths: Paths) -> list[str]:
    """What is wrong with the user's ``models.toml``, one sentence each."""
    return known_models(paths)[1]


def find_model(name_or_path: str, paths: Paths, config: Config) -> ModelEntry:
    """The one model that a user means by a name, an alias, an unambiguous beginning of one, or a path.

    Raises:
        UnknownModel: Nothing fits (near misses are named), or several do.
    """
    wanted = name_or_path.strip()
    if _looks_like_path(wanted):
        there = Path(wanted).expanduser().exists()
        homes = [] if there else [m for m in known_models(paths)[0] if m.repo.casefold() == wanted.casefold()]
        return entry_of(homes[-1], paths) if len(homes) == 1 else _by_path(wanted)
    entries = list_models(paths, config)
    by_name = {name.casefold(): entry for entry in entries for name in (*entry.aliases, entry.name)}
    folded = wanted.casefold()
    if folded in by_name:
        return by_name[folded]
    begun = {entry.name: entry for name, entry in by_name.items() if folded and name.startswith(folded)}
    if len(begun) == 1:
        return next(iter(begun.values()))
    if begun:
        names = tuple(sorted(begun))
        raise UnknownModel(f"{_shown(wanted)} could be {_either(names)}; type more of the name", names)
    if wanted and Path(wanted).exists():
        return _by_path(wanted)
    near = tuple(
        dict.fromkeys(by_name[n].name for n in difflib.get_close_matches(folded, by_name, n=3, cutoff=0.6))
    )
    hint = f"did you mean {_either(near)}?" if near else "kt-tui models lists those there are"
    raise UnknownModel(f"there is no model {_shown(wanted)}; {hint}", near)


def entry_of(model: KnownModel, paths: Paths) -> ModelEntry:
    """A known model with its state on this machine."""
    entry = ModelEntry(
        name=model.name,
        aliases=model.aliases,
        format=model.format,
        bytes=model.bytes or (checkpoint_bytes(model.shape, model.formats) if model.shape else None),
        family=model.family,
        description=model.description,
        served_name=model.name,
        defaults=model.defaults,
        notes=model.notes,
        repo=model.repo,
        parameters=model.parameters,
        shape=model.shape,
        formats=model.formats,
        limits=model.limits,
        published=model.published,
    )
    if model.builder is not None:
        return _built(entry, paths.models / model.name, model.builder.recipe)
    if model.package is not None:
        return _packaged(entry, model)
    if model.path is not None:
        return _with(entry, inspect_path(model.path))
    return entry


def _built(entry: ModelEntry, target: Path, recipe: int) -> ModelEntry:
    entry = replace(entry, preparable=True, target=target, recipe=recipe)
    if not target.is_dir():
        return entry
    try:
        problems = size_problems(target, read_manifest(target, recipe))
    except ManifestError as error:
        problems = [str(error)]
    if problems:
        mend = f"{problems[0]}; it is made again at the next start"
        return replace(entry, path=target, state=ModelState.INCOMPLETE, problems=(mend, *problems[1:]))
    return _with(entry, inspect_path(target))


def _packaged(entry: ModelEntry, model: KnownModel) -> ModelEntry:
    package = model.package
    if package is None:
        return entry
    try:
        spec = importlib.util.find_spec(package.module)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        missing = f"the Python package {package.name} is not installed; {package.install}"
        return replace(entry, problems=(missing,))
    path = Path(spec.origin).with_name(package.file)
    if not path.is_file():
        missing = f"the installed {package.name} lacks {package.file}; {package.install} --force-reinstall"
        return replace(entry, state=ModelState.WRONG, problems=(missing,))
    return replace(_with(entry, inspect_path(path)), sha256=package.sha256)


def _with(entry: ModelEntry, found: Inspection) -> ModelEntry:
    """What the files say goes before what the catalogue says."""
    return replace(
        entry,
        path=found.path,
        state=found.state,
        format=found.format or entry.format,
        bytes=entry.bytes if found.state is ModelState.OFFLINE else found.bytes,
        family=found.family or entry.family,
        problems=found.problems,
    )


def _entry_of_path(path: Path) -> ModelEntry:
    served = path.stem if path.suffix.lower() == ".gguf" else path.name
    return _with(ModelEntry(name=str(path), served_name=served), inspect_path(path))


def _by_path(text: str) -> ModelEntry:
    path = Path(text).expanduser().absolute()
    entry = _entry_of_path(path)
    if entry.state is ModelState.OFFLINE:
        raise UnknownModel(
            f"there is nothing at {path}; a model is a folder with safetensors files or a GGUF file"
        )
    return entry


def _looks_like_path(text: str) -> bool:
    return "/" in text or text.startswith(("~", ".")) or text.lower().endswith((".gguf", ".safetensors"))


def _candidates(folders: Iterable[Path]) -> list[Path]:
    """Children of the folders that could be models; a folder that cannot be read has none."""
    found: list[Path] = []
    for folder in folders:
        try:
            children = sorted(folder.iterdir())
        except OSError:
            continue
        found += [
            child
            for child in children
            if not child.name.startswith(".") and (child.suffix.lower() == ".gguf" or child.is_dir())
        ]
    return found[:_MAX_FOUND]


def _either(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last


def _shown(text: str) -> str:
    return repr("".join(letter if letter.isprintable() else "?" for letter in text)[:80])
