"""The folder of the kt command line as a whole: what is in it, and taking it over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kt_tui.catalog.known import known_models
from kt_tui.errors import KtError
from kt_tui.kt_import.models import REGISTRY, USER_MODELS, KtModel, registry_models, user_models
from kt_tui.kt_import.runs import RUN_CONFIGS, profiles_of_runs
from kt_tui.kt_import.yaml_file import read_yaml
from kt_tui.paths import Paths
from kt_tui.profiles import Profile, load_profile, profile_path, save_profile
from kt_tui.tomlfile import edit_toml, read_toml

KT_FOLDER = "~/.ktransformers"
_NOT_TAKEN = {
    "config.yaml": "kt's settings were not taken over; kt-tui config show lists the settings there are here",
    "chat_history": "conversations were not taken over",
}


@dataclass(frozen=True)
class Found:
    """What a folder holds, in the terms of kt-tui.

    Attributes:
        folder: The folder.
        models: Entries for ``models.toml``.
        profiles: Saved runs.
        notes: All that has no meaning here or cannot be read, one sentence each.
        unreadable: Whether a file could not be read at all.
    """

    folder: Path
    models: tuple[KtModel, ...] = ()
    profiles: tuple[Profile, ...] = ()
    notes: tuple[str, ...] = ()
    unreadable: bool = False


@dataclass(frozen=True)
class Outcome:
    """What became of it: names by kind, as ``saved`` or ``kept`` (what was there already and differs)."""

    saved_models: tuple[str, ...] = ()
    saved_profiles: tuple[str, ...] = ()
    kept_models: tuple[str, ...] = ()
    kept_profiles: tuple[str, ...] = ()


def read_kt(folder: Path, paths: Paths) -> Found:
    """Read a folder of the kt command line. Changes nothing; a file that cannot be read is a note.

    Raises:
        KtError: None of kt's files is there, or the user's own ``models.toml`` is invalid.
    """
    notes: list[str] = []
    documents: dict[str, Mapping[str, Any]] = {}
    unreadable = False
    names = (USER_MODELS, REGISTRY, RUN_CONFIGS)
    if not any((folder / name).exists() for name in names):
        raise KtError(
            f"there is none of {', '.join(names)} in {folder}; name the folder of the kt command line"
        )
    for name in names:
        try:
            if (document := read_yaml(folder / name)) is not None:
                documents[name] = document
        except KtError as error:
            notes.append(str(error))
            unreadable = True
    own = read_toml(paths.models_file).get("models", {})
    shipped = [model for model in known_models(paths)[0] if model.name not in own]
    models = user_models(documents[USER_MODELS], shipped, notes) if USER_MODELS in documents else []
    if REGISTRY in documents:
        models += [
            model
            for model in registry_models(documents[REGISTRY], shipped, notes)
            if _is_new(model, models, notes)
        ]
    profiles = profiles_of_runs(documents[RUN_CONFIGS], models, notes) if RUN_CONFIGS in documents else []
    notes += [f"{name}: {words}" for name, words in _NOT_TAKEN.items() if (folder / name).exists()]
    return Found(folder, tuple(models), tuple(profiles), tuple(notes), unreadable)


def take_over(
    found: Found, paths: Paths, may_replace: Callable[[str], bool], *, profiles_too: bool = True
) -> Outcome:
    """Write what was found into ``models.toml`` and the profiles.

    Args:
        found: What to write.
        paths: Where.
        may_replace: Asked with a sentence for each model and profile that is there already and differs.
        profiles_too: Write the profiles, not only the models.

    Raises:
        KtError: A file cannot be written; what was written before stays.
    """
    saved_models, kept_models = _save_models(found.models, paths, may_replace)
    saved_profiles, kept_profiles = [], []
    for profile in found.profiles if profiles_too else ():
        exists = profile_path(paths, profile.name).exists()
        if exists and _same_launch(paths, profile):
            continue
        if exists and not may_replace(f"There is a profile {profile.name} already"):
            kept_profiles.append(profile.name)
            continue
        save_profile(paths, profile, overwrite=exists)
        saved_profiles.append(profile.name)
    return Outcome(saved_models, tuple(saved_profiles), kept_models, tuple(kept_profiles))


def _save_models(
    models: tuple[KtModel, ...], paths: Paths, may_replace: Callable[[str], bool]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    present = read_toml(paths.models_file).get("models", {}) if models else {}
    present = present if isinstance(present, dict) else {}
    wanted: dict[str, Mapping[str, Any]] = {}
    kept = []
    for model in models:
        old = present.get(model.name)
        if old is not None and all(old.get(key) == value for key, value in model.fields.items()):
            continue
        if old is not None and not may_replace(
            f"There is a model {model.name} in {paths.models_file} already"
        ):
            kept.append(model.name)
            continue
        wanted[model.name] = model.fields
    if wanted:
        edit_toml(paths.models_file, lambda document: _enter(document, wanted))
    return tuple(wanted), tuple(kept)


def _enter(document: MutableMapping[str, Any], wanted: Mapping[str, Mapping[str, Any]]) -> None:
    import tomlkit

    styled = isinstance(document, tomlkit.TOMLDocument)

    def table(values: Mapping[str, Any]) -> Any:
        made: Any = tomlkit.table() if styled else {}
        for key, value in values.items():
            made[key] = table(value) if isinstance(value, Mapping) else value
        return made

    if "models" not in document:
        document["models"] = tomlkit.table(is_super_table=True) if styled else {}
    for name, fields in wanted.items():
        entry = document["models"].get(name)
        if not isinstance(entry, MutableMapping):
            document["models"][name] = table(fields)
            continue
        for key, value in fields.items():
            entry[key] = table(value) if isinstance(value, Mapping) else value


def _same_launch(paths: Paths, profile: Profile) -> bool:
    try:
        old = load_profile(paths, profile.name)
    except KtError:
        return False
    return (old.model, old.engine, dict(old.options)) == (
        profile.model,
        profile.engine,
        dict(profile.options),
    )


def _is_new(model: KtModel, models: list[KtModel], notes: list[str]) -> bool:
    if model.name.casefold() not in {one.name.casefold() for one in models}:
        return True
    notes.append(f"{REGISTRY}, {model.kt_name!r}: {USER_MODELS} has a model of that name, which is taken")
    return False
