"""``run_configs.yaml`` as profiles."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from kt_tui.kt_import.models import KtModel
from kt_tui.kt_import.options import RUN_KEYS
from kt_tui.kt_import.reader import Reader
from kt_tui.profiles import Profile, name_problem

RUN_CONFIGS = "run_configs.yaml"
_WHOLE = (
    "cpu_threads",
    "numa_nodes",
    "gpu_experts",
    "tp_size",
    "kv_cache",
    "chunk_prefill",
    "gpu_prefill_threshold",
    "port",
)
_DEFAULT_HOST = "0.0.0.0"  # noqa: S104 (what kt listens on unless told otherwise)


def profiles_of_runs(
    document: Mapping[str, Any], models: Sequence[KtModel], notes: list[str]
) -> list[Profile]:
    """The saved runs; each names its model by the id that ``user_models.yaml`` gives it."""
    by_model = document.get("configs")
    if not isinstance(by_model, dict):
        notes.append(f"{RUN_CONFIGS}: configs is no mapping, so no saved run was taken over")
        return []
    profiles: list[Profile] = []
    for kt_id, configs in by_model.items():
        if not isinstance(configs, list):
            notes.append(f"{RUN_CONFIGS}, model {str(kt_id)[:60]!r}: this is no list, and was left out")
            continue
        model = next((model for model in models if model.kt_id and model.kt_id == kt_id), None)
        for number, config in enumerate(configs, 1):
            if not isinstance(config, dict):
                notes.append(
                    f"{RUN_CONFIGS}, model {str(kt_id)[:60]!r}: run {number} is no mapping, and was left out"
                )
                continue
            profile = _profile(config, model, {one.name.casefold() for one in profiles}, notes)
            if profile is not None:
                profiles.append(profile)
    return profiles


def _profile(
    config: Mapping[str, Any], model: KtModel | None, taken: set[str], notes: list[str]
) -> Profile | None:
    kt_name = config.get("config_name")
    shown = "".join(
        letter if letter.isprintable() else "?" for letter in str(kt_name or "a run without a name")
    )
    reader = Reader(config, f'{RUN_CONFIGS}, "{shown[:60]}"', notes)
    reader.drop(("config_name",))
    path = reader.text("model_path")
    target = model.name if model is not None and (not path or path == model.path) else path
    if not target:
        reader.note("its model is in no list and it has no path, so it was left out")
        return None
    if model is None:
        reader.note(f"its model is not in user_models.yaml; the path {path} is taken")
    options: dict[str, object] = {}
    for key, option in RUN_KEYS.items():
        value: object | None
        if key in _WHOLE:
            value = reader.whole(key)
        elif key == "mem_fraction_static":
            value = reader.number(key)
        else:
            value = reader.text(key) or None
        if value is not None:
            options[option] = value
    _check(options, path, reader)
    method, raw = reader.text("inference_method"), reader.text("raw_method")
    if raw and "kt-method" not in options:
        options["kt-method"] = raw
    created = _when(reader.pop("created_at"))
    reader.rest()
    name = _free_name(str(kt_name or ""), target, taken, reader)
    note = "from the kt command line" + (f", {method}" if method else "")
    return Profile(name=name, model=target, engine="sglang", options=options, created=created, note=note)


def _check(options: dict[str, object], path: str, reader: Reader) -> None:
    if options.get("host") == _DEFAULT_HOST:
        reader.note(
            "it listens on all addresses (0.0.0.0), which was kt's default; --host 127.0.0.1 keeps it on this machine"
        )
    # kt names the model's own folder where there are no other weights for the CPU.
    if options.get("weights-path") in {path, "None"}:
        options.pop("weights-path")


def _free_name(kt_name: str, target: str, taken: set[str], reader: Reader) -> str:
    """A file name near to the run's name, and none that another imported run has."""
    base = re.sub(r"[^\w.+-]+", "-", kt_name.strip()).strip("-.")[:60] or "run"
    if re.fullmatch(r"config-(raw|amx|gguf|default)", base.casefold()):
        # What kt proposes says nothing of the model.
        base = re.sub(r"[^\w.+-]+", "-", target.rstrip("/").rpartition("/")[2]).strip("-.")[:60] + base[6:]
    if name_problem(base):
        base = "run-" + re.sub(r"[^A-Za-z0-9]+", "-", base).strip("-")
    names = (base, *(f"{base}-{number}" for number in range(2, 10_000)))
    name = next(name for name in names if name.casefold() not in taken and not name_problem(name))
    if name != kt_name:
        reader.note(f"it is called {name} here")
    return name


def _when(value: object) -> datetime | None:
    try:
        when = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).replace(microsecond=0)
