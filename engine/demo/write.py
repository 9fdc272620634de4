"""Files of a checkpoint folder, each flushed to the disk and entered with its checksum."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.demo import MANIFEST, RECIPE
from engine.demo.fp8 import quantize_blocks
from engine.demo.options import DemoOptions
from engine.demo.upcycle import Named, Role

CHUNK = 8 << 20
INDEX = "model.safetensors.index.json"


def encode(tensors: Iterable[Named], options: DemoOptions) -> Iterator[tuple[str, Tensor]]:
    """The tensors as they are stored; a quantised weight is followed by its scales."""
    for name, tensor, role in tensors:
        if options.store == "fp8" and role is Role.LINEAR:
            quantized, scale = quantize_blocks(tensor)
            yield name, quantized
            yield name.removesuffix("weight") + "weight_scale_inv", scale
        elif options.store == "fp32" or role is Role.EXACT:
            yield name, tensor.float().contiguous()
        else:
            yield name, tensor.to(torch.bfloat16).contiguous()


class FolderWriter:
    """Writes files into one folder and remembers what it wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, dict[str, object]] = {}

    def put(self, name: str, data: bytes) -> None:
        """Write a file and wait until the disk has it. Raises OSError."""
        digest = hashlib.sha256()
        with (self.folder / name).open("wb") as file:
            for start in range(0, len(data), CHUNK):
                block = memoryview(data)[start : start + CHUNK]
                file.write(block)
                digest.update(block)
            file.flush()
            os.fsync(file.fileno())
        self.files[name] = {"bytes": len(data), "sha256": digest.hexdigest()}

    def put_json(self, name: str, document: object) -> None:
        """Write a JSON file."""
        self.put(name, json.dumps(document, indent=1).encode())

    def rename(self, old: str, new: str) -> None:
        """Give a file that was written its final name."""
        (self.folder / old).rename(self.folder / new)
        self.files[new] = self.files.pop(old)

    def put_manifest(self, about: dict[str, Any]) -> None:
        """Write the manifest, last, so that a folder without one is known to be unfinished."""
        document = {"recipe": RECIPE, **about, "files": dict(self.files)}
        self.put(MANIFEST, json.dumps(document, indent=1).encode())


def write_shards(writer: FolderWriter, tensors: Iterable[tuple[str, Tensor]], shard_bytes: int) -> int:
    """Write safetensors files of at most ``shard_bytes`` (or one tensor), and the index if there are several.

    Returns:
        Bytes of all tensors.
    """
    from safetensors.torch import save

    where: dict[str, int] = {}
    pending: dict[str, Tensor] = {}
    size = total = count = 0

    def flush() -> None:
        nonlocal count, size
        count += 1
        where.update(dict.fromkeys(pending, count))
        writer.put(f"shard-{count}", save(pending, metadata={"format": "pt"}))
        pending.clear()
        size = 0

    for name, tensor in tensors:
        bytes_of_tensor = tensor.numel() * tensor.element_size()
        if pending and size + bytes_of_tensor > shard_bytes:
            flush()
        pending[name] = tensor
        size += bytes_of_tensor
        total += bytes_of_tensor
    flush()

    if count == 1:
        writer.rename("shard-1", "model.safetensors")
        return total
    names = {number: f"model-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)}
    for number, name in names.items():
        writer.rename(f"shard-{number}", name)
    index = {"metadata": {"total_size": total}, "weight_map": {name: names[n] for name, n in where.items()}}
    writer.put_json(INDEX, index)
    return total
