"""``user_models.yaml`` and ``registry.yaml`` as entries for ``models.toml``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kt_tui.catalog.known import KnownModel
from kt_tui.kt_import.options import option_name
from kt_tui.kt_import.reader import Reader

USER_MODELS = "user_models.yaml"
REGISTRY = "registry.yaml"
_SCALARS = (str, int, float, bool)
_FOUND_OUT_BY_ITSELF = (
    "format",
    "created_at",
    "is_moe",
    "moe_num_experts",
    "moe_num_experts_per_tok",
    "amx_quant_method",
    "amx_numa_nodes",
)


@dataclass(frozen=True)
class KtModel:
    """One model of the kt command line.

    Attributes:
        name: As `kt-tui` will call it.
        kt_name: As ``kt`` calls it.
        kt_id: What ``run_configs.yaml`` calls it; empty for an entry of the registry.
        path: Where its weights are; empty for an entry of the registry.
        fields: The entry for ``models.toml``.
    """

    name: str
    kt_name: str
    kt_id: str = ""
    path: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)


def user_models(document: Mapping[str, Any], known: Sequence[KnownModel], notes: list[str]) -> list[KtModel]:
    """The models that a user has registered; one from a known model's repository gets its launch defaults."""
    listed = document.get("models")
    if not isinstance(listed, list):
        notes.append(f"{USER_MODELS}: models is no list, so no model was taken over")
        return []
    models: list[KtModel] = []
    for number, entry in enumerate(listed, 1):
        if not isinstance(entry, dict):
            notes.append(f"{USER_MODELS}, entry {number}: this is no mapping, and was left out")
            continue
        reader = Reader(entry, f"{USER_MODELS}, {_shown(entry.get('name'), number)}", notes)
        model = _user_model(reader, known)
        if model is not None:
            models.append(_unique(model, models, known, reader))
        reader.rest()
    return models


def _user_model(reader: Reader, known: Sequence[KnownModel]) -> KtModel | None:
    name, path = reader.text("name"), reader.text("path")
    repo, hub = reader.text("repo_id"), reader.text("repo_type")
    status = reader.text("sha256_status")
    links, source = reader.texts("gpu_model_ids"), reader.text("amx_source_model")
    kt_id = reader.text("id")
    reader.drop((*_FOUND_OUT_BY_ITSELF, "last_verified"))
    if not path.startswith("/"):
        reader.note("it has no absolute path, and was left out")
        return None
    name = _model_name(name or path.rstrip("/").rpartition("/")[2])
    if status in {"passed", "failed"}:
        reader.note(f"that its checksums {status} was left out; kt-tui models verify checks them again")
    if links or source:
        reader.note(
            "these are CPU weights for another model; name them with --weights-path when you start that one"
        )
    fields: dict[str, Any] = {"path": path}
    if repo:
        fields["repo"] = repo
        if hub == "modelscope":
            fields["notes"] = ["from ModelScope"]
        like = next(
            (model for model in known if model.repo and model.repo.casefold() == repo.casefold()), None
        )
        if like is not None:
            fields |= {"description": like.description} if like.description else {}
            fields |= {"limits": dict(like.limits)} if like.limits else {}
            fields |= {"defaults": dict(like.defaults)} if like.defaults else {}
    return KtModel(name, name, kt_id, path, fields)


def registry_models(
    document: Mapping[str, Any], known: Sequence[KnownModel], notes: list[str]
) -> list[KtModel]:
    """The models that a user has added to the registry."""
    listed = document.get("models")
    if not isinstance(listed, dict):
        notes.append(f"{REGISTRY}: models is no mapping, so no model was taken over")
        return []
    models: list[KtModel] = []
    for kt_name, entry in listed.items():
        if not isinstance(entry, dict):
            notes.append(f"{REGISTRY}, {_shown(kt_name)}: this is no mapping, and was left out")
            continue
        reader = Reader(entry, f"{REGISTRY}, {_shown(kt_name)}", notes)
        told: dict[str, Any] = {
            "repo": reader.text("hf_repo"),
            "aliases": reader.texts("aliases"),
            "description": reader.text("description"),
        }
        fields = {key: value for key, value in told.items() if value}
        limit = reader.whole("max_tensor_parallel_size")
        if limit is not None and limit > 0:
            fields["limits"] = {"tensor-parallel-size": limit}
        memory = {key: reader.number(key) for key in ("gpu_vram_gb", "cpu_ram_gb")}
        if any(memory.values()):
            reader.note("its memory needs were left out; kt-tui works them out from the model's dimensions")
        if defaults := _defaults(reader):
            fields["defaults"] = defaults
        reader.drop(("type",))
        models.append(_unique(KtModel(_model_name(kt_name), kt_name, fields=fields), models, known, reader))
        reader.rest()
    return models


def _defaults(reader: Reader) -> dict[str, Any]:
    defaults: dict[str, Any] = {}
    for flag, value in reader.mapping("default_params").items():
        name = option_name(flag)
        if value is None:
            continue
        if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
            reader.note("a default with a name that no launch option has was left out")
        elif type(value) not in _SCALARS or not str(value).isprintable():
            reader.note(f"default {flag} is no text, number, true or false, and was left out")
        elif name in {"gpu-experts", "cpu-threads", "numa-nodes", "tensor-parallel-size"} and isinstance(
            value, bool
        ):
            reader.note(f"default {flag} is {str(value).lower()}, which kt makes of {int(value)}")
            defaults[name] = int(value)
        else:
            defaults[name] = value
    return defaults


def _unique(
    model: KtModel, before: Sequence[KtModel], known: Sequence[KnownModel], reader: Reader
) -> KtModel:
    """A name that neither another entry nor a known model has, which an own entry would replace."""
    taken = {name.casefold() for entry in known for name in (entry.name, *entry.aliases)}
    taken |= {entry.name.casefold() for entry in before}
    names = (model.name, f"{model.name}-kt", *(f"{model.name}-kt{number}" for number in range(2, 10_000)))
    name = next(name for name in names if name.casefold() not in taken)
    if name != model.name:
        reader.note(f"it is called {name} here, since {model.name} is another model's name")
    # An alias that leads somewhere already would make both ambiguous.
    kept = []
    for alias in model.fields.get("aliases", ()):
        if alias.casefold() in taken:
            reader.note(f"alias {alias} leads to another model already, and was left out")
        elif alias.casefold() != name.casefold():
            kept.append(alias)
    fields = {**model.fields, **({"aliases": kept} if kept else {})}
    if not kept:
        fields.pop("aliases", None)
    return KtModel(name, model.kt_name, model.kt_id, model.path, fields)


def _model_name(name: str) -> str:
    """A name that a catalogue entry may have."""
    return (
        "".join(letter for letter in name.replace("/", "-") if letter.isprintable()).strip()[:120] or "model"
    )


def _shown(name: object, number: int | None = None) -> str:
    if isinstance(name, str) and name:
        text = "".join(letter if letter.isprintable() else "?" for letter in name)
        return f'"{text[:60]}"'
    return f"entry {number}"
