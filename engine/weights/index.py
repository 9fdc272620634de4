"""A checkpoint: a GGUF file, or a folder with ``config.json`` and safetensors shards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import CheckpointError
from engine.weights.gguf import open_gguf
from engine.weights.safetensors import read_safetensors
from engine.weights.tensor import StoredTensor

INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An opened checkpoint; its weights are mapped, not read.

    Attributes:
        path: The folder or the GGUF file.
        config: ``config.json``, or the GGUF metadata in its words.
        tensors: Every tensor by its hub name.
    """

    path: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a checkpoint and check that its files are whole.

    Raises:
        CheckpointError: A file is missing, cut short or damaged; the message names it.
    """
    if path.is_file():
        if path.suffix != ".gguf":
            raise CheckpointError(f"{path} is not a model: give a GGUF file or a folder with config.json")
        return Checkpoint(path, *open_gguf(path))
    if not path.is_dir():
        raise CheckpointError(f"{path} does not exist: give a GGUF file or a folder with config.json")
    config = read_json(path / "config.json")
    if (path / INDEX).exists():
        return Checkpoint(path, config, _open_indexed(path))
    shards = sorted(path.glob("*.safetensors"))
    if not shards:
        raise CheckpointError(f"{path} holds no .safetensors file: download the model again")
    tensors: dict[str, StoredTensor] = {}
    for shard in shards:
        tensors |= read_safetensors(shard)
    return Checkpoint(path, config, tensors)


def _open_indexed(path: Path) -> dict[str, StoredTensor]:
    """The shards that the index lists, and from each the tensors that it puts there."""
    index = path / INDEX
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index} has no weight_map: download it again")
    names: dict[str, list[str]] = {}
    for name, file in weight_map.items():
        # A file name with a folder in it would reach outside of the checkpoint.
        if not isinstance(file, str) or not file or Path(file).name != file:
            raise CheckpointError(f"{index} puts {name} into {str(file)!r}, which is not a file name")
        names.setdefault(file, []).append(name)
    missing = [file for file in sorted(names) if not (path / file).exists()]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise CheckpointError(
            f"{path / missing[0]}{more} of {len(names)} shards is missing: download the model again"
        )
    tensors: dict[str, StoredTensor] = {}
    for file in sorted(names):
        found = read_safetensors(path / file)
        for name in names[file]:
            if name not in found:
                raise CheckpointError(
                    f"{path / file} lacks {name}, which {INDEX} puts there: download it again"
                )
            tensors[name] = found[name]
    return tensors


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        CheckpointError: The file is missing or is not a JSON object.
    """
    if path.exists() and not path.is_file():
        raise CheckpointError(f"{path} is not a file: download the model again")
    try:
        document = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing: download the model again") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror or error})") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged ({error}): download it again") from None
    if not isinstance(document, dict):
        raise CheckpointError(f"{path} is damaged (it is not a JSON object): download it again")
    return document
