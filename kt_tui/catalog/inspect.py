"""What lies at a path: which model, in which format, and whether all of it is there. Reads headers only."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kt_tui.catalog.entry import ModelState
from kt_tui.catalog.safetensors_header import (
    INDEX,
    HeaderError,
    TruncatedError,
    read_index,
    read_safetensors_header,
)
from kt_tui.tomlfile import reason

_MAX_JSON = 16 << 20
_SPLIT = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf", re.IGNORECASE)
_POSITIVE = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "vocab_size",
    "max_position_embeddings",
)
_LABELS = {"F8_E4M3": "fp8", "BF16": "bf16", "F16": "fp16", "F32": "fp32", "U8": "packed", "I32": "packed"}


@dataclass(frozen=True)
class Inspection:
    """What was found at a path.

    Attributes:
        path: What an engine should be given: the folder, or the GGUF file.
        state: complete, incomplete, wrong or offline.
        format: As in `ModelEntry.format`.
        bytes: Real bytes of the weight files.
        family: ``model_type`` of config.json, or the GGUF architecture.
        problems: One sentence each; a complete checkpoint may have a warning here.
    """

    path: Path
    state: ModelState
    format: str | None = None
    bytes: int = 0
    family: str | None = None
    problems: tuple[str, ...] = ()


def inspect_path(path: Path) -> Inspection:
    """Look at a checkpoint folder or GGUF file. Never raises: what is wrong becomes a state and its reasons."""
    try:
        if path.is_dir():
            return _folder(path)
        if path.exists():
            return _file(path)
    except OSError as error:
        return Inspection(path, ModelState.WRONG, problems=(f"cannot read {path}: {reason(error)}",))
    missing = f"there is nothing at {path}; if it is on a disk that is not mounted, mount it"
    return Inspection(path, ModelState.OFFLINE, problems=(missing,))


def _file(path: Path) -> Inspection:
    if path.suffix.lower() == ".gguf":
        return _gguf([path])
    hint = (
        "name the folder that holds it"
        if path.suffix == ".safetensors"
        else "a model is a folder or a GGUF file"
    )
    return Inspection(path, ModelState.WRONG, problems=(f"{path} is not a GGUF file; {hint}",))


def _folder(folder: Path) -> Inspection:
    names = sorted(entry.name for entry in os.scandir(folder))
    weights = [name for name in names if name.endswith(".safetensors")]
    ggufs = [name for name in names if name.lower().endswith(".gguf")]
    if weights or INDEX in names or (not ggufs and "config.json" in names):
        found = _safetensors(folder, names, weights)
        if ggufs:
            both = (
                f"{folder} holds safetensors and GGUF files ({ggufs[0]}); the safetensors are used, "
                "name the GGUF file to run that"
            )
            return Inspection(
                found.path, found.state, found.format, found.bytes, found.family, (*found.problems, both)
            )
        return found
    if ggufs:
        return _gguf_folder(folder, ggufs)
    if any(name.endswith((".bin", ".pt", ".pth")) for name in names):
        why = f"{folder} has only PyTorch pickle files, which are never loaded; get the safetensors version"
    else:
        why = f"no weight files (*.safetensors or *.gguf) in {folder}"
    return Inspection(folder, ModelState.WRONG, problems=(why,))


def _safetensors(folder: Path, names: Sequence[str], weights: Sequence[str]) -> Inspection:
    missing, wrong, short = [], [], []
    expected = list(weights)
    if INDEX in names:
        try:
            expected = sorted(read_index(folder / INDEX))
        except HeaderError as error:
            wrong.append(str(error))
    elif not weights:
        missing.append("the weights (*.safetensors)")
    sizes: Counter[str] = Counter()
    total = 0
    for name in expected:
        file = folder / name
        if not file.is_file():
            missing.append(f"{name} (a link to nothing)" if file.is_symlink() else name)
            continue
        total += file.stat().st_size
        try:
            sizes.update(read_safetensors_header(file))
        except TruncatedError as error:
            short.append(str(error))
        except HeaderError as error:
            wrong.append(str(error))
    config = _config(folder, names, missing, wrong)
    family = config.get("model_type")
    problems = [f"{folder} lacks {_some(missing)}{_resume_hint(folder)}"] if missing else []
    problems += short + wrong
    incomplete, bad = bool(missing or short), bool(wrong)
    state = ModelState.WRONG if bad else ModelState.INCOMPLETE if incomplete else ModelState.COMPLETE
    return Inspection(
        folder,
        state,
        _format(sizes, config),
        total,
        family if isinstance(family, str) else None,
        tuple(problems),
    )


def _config(folder: Path, names: Sequence[str], missing: list[str], wrong: list[str]) -> dict[str, Any]:
    path = folder / "config.json"
    if "config.json" not in names or not path.is_file():
        missing.append("config.json")
        return {}
    try:
        if path.stat().st_size > _MAX_JSON:
            raise ValueError("too long")
        document = json.loads(path.read_bytes())
        if not isinstance(document, dict):
            raise ValueError("not an object")
    except (ValueError, RecursionError) as error:
        wrong.append(f"{path} is not valid JSON ({str(error)[:120]}); fetch it again")
        return {}
    for key in _POSITIVE:
        value = document.get(key)
        if isinstance(value, int | float) and value <= 0:
            wrong.append(f"{path} says {key}={value}, which makes no sense; fetch it again")
    return document


def _format(sizes: Counter[str], config: dict[str, Any]) -> str | None:
    """Named after the type that takes the most bytes, or after the packing method of the configuration."""
    if not sizes:
        return None
    dtype = sizes.most_common(1)[0][0]
    label = _LABELS.get(dtype, dtype.lower())
    quantization = config.get("quantization_config")
    method = quantization.get("quant_method") if isinstance(quantization, dict) else None
    if label == "packed" and isinstance(method, str):
        label = method
    return f"safetensors-{label}"


def _gguf_folder(folder: Path, names: Sequence[str]) -> Inspection:
    sets: dict[str, list[str]] = {}
    for name in names:
        match = _SPLIT.fullmatch(name)
        sets.setdefault(match[1] if match else name, []).append(name)
    if len(sets) > 1:
        several = f"{folder} holds {len(sets)} GGUF models ({_some(sorted(sets))}); name one file"
        return Inspection(folder, ModelState.WRONG, problems=(several,))
    return _gguf([folder / name for name in next(iter(sets.values()))])


def _gguf(files: Sequence[Path]) -> Inspection:
    """One GGUF model; of a split one, the other parts are looked up beside the first."""
    from engine.gguf_header import GgufError, read_gguf_header

    first = files[0]
    match = _SPLIT.fullmatch(first.name)
    parts = [first]
    if match:
        count = int(match[3])
        parts = [
            first.with_name(f"{match[1]}-{n:05d}-of-{match[3]}.gguf") for n in range(1, min(count, 9999) + 1)
        ]
    sizes: Counter[str] = Counter()
    problems: list[str] = []
    state, family, total = ModelState.COMPLETE, None, 0
    if missing := [part.name for part in parts if not part.is_file()]:
        state = ModelState.INCOMPLETE
        problems.append(f"{first.parent} lacks {_some(missing)}")
    for part in parts:
        if not part.is_file():
            continue
        total += part.stat().st_size
        try:
            header = read_gguf_header(part)
        except (GgufError, ValueError) as error:
            state = ModelState.WRONG
            problems.append(
                str(error) if isinstance(error, GgufError) else f"{part} is empty; fetch it again"
            )
            continue
        family = family or header.architecture or None
        for tensor in header.tensors.values():
            sizes[tensor.type] += tensor.nbytes
        if header.needed_bytes > header.file_bytes:
            state = ModelState.INCOMPLETE if state is ModelState.COMPLETE else state
            problems.append(
                f"{part} is cut short: {header.file_bytes} of {header.needed_bytes} bytes; fetch it again"
            )
    label = f"gguf-{sizes.most_common(1)[0][0].lower()}" if sizes else "gguf"
    return Inspection(parts[0], state, label, total, family, tuple(problems))


def _resume_hint(folder: Path) -> str:
    """How to go on with an interrupted download, when the folder lies in the hub's cache layout."""
    for parent in folder.parents:
        if parent.name.startswith("models--"):
            return f"; resume it with: hf download {parent.name.removeprefix('models--').replace('--', '/')}"
    return "; fetch the model again"


def _some(names: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
