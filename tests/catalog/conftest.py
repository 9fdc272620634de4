"""Checkpoints that are no more than their headers and a few numbers."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def write_safetensors() -> Callable[..., Path]:
    """Writes a file with tensors of the given types: (path, {name: (dtype, bytes)})."""

    def write(path: Path, tensors: dict[str, tuple[str, int]]) -> Path:
        header, at = {}, 0
        for name, (dtype, size) in tensors.items():
            header[name] = {"dtype": dtype, "shape": [size], "data_offsets": [at, at + size]}
            at += size
        raw = json.dumps(header).encode()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(at))
        return path

    return write


@pytest.fixture
def checkpoint(tmp_path: Path, write_safetensors: Callable[..., Path]) -> Path:
    """A complete folder of two FP8 shards with their index."""
    folder = tmp_path / "checkpoint"
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    for number, name in enumerate(names):
        write_safetensors(folder / name, {f"w{number}": ("F8_E4M3", 900), f"s{number}": ("F32", 40)})
    weight_map = {f"{kind}{number}": name for number, name in enumerate(names) for kind in "ws"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps({"model_type": "minimax_m2"}))
    return folder
