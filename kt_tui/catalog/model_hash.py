"""A hash that tells whether a checkpoint is still the one of yesterday, without reading its weights."""

from __future__ import annotations

import glob
import hashlib
import os
import re
from pathlib import Path

_HEADER_BYTES = 1 << 20
_SMALL_FILES = ("config.json", "model.safetensors.index.json", "generation_config.json")
_SPLIT = re.compile(r"(.+)-\d{5}-of-(\d{5})\.gguf", re.IGNORECASE)
_DIGITS = 32


def model_hash(path: Path) -> str | None:
    """The hash of a checkpoint folder or a GGUF file; 32 hexadecimal digits.

    It is over the sizes of the weight files, the first MiB of each (which holds its header), the last 4 KiB of each,
    and the folder's configuration. So it costs some milliseconds a file, whatever their size, and does not depend on
    where the checkpoint lies. It is no proof against somebody who changes weights in the middle;
    `kt_tui.catalog.verify` reads every byte.

    Returns:
        None when there are no weights at ``path``, or they cannot be read.
    """
    try:
        files = _files(path)
        if not any(_is_weight(file.name) for _, file in files):
            return None
        digest = hashlib.sha256()
        for name, file in files:
            size = file.stat().st_size
            digest.update(f"{name}\0{size}\0".encode())
            with file.open("rb") as stream:
                digest.update(stream.read(_HEADER_BYTES))
                if size > _HEADER_BYTES:
                    stream.seek(max(size - 4096, _HEADER_BYTES))
                    digest.update(stream.read(4096))
    except OSError:
        return None
    return digest.hexdigest()[:_DIGITS]


def _files(path: Path) -> list[tuple[str, Path]]:
    """What counts, by name and in order. The name of a GGUF file is its owner's business; only its part counts."""
    if path.is_dir():
        names = sorted(entry.name for entry in os.scandir(path))
        weights = [name for name in names if name.endswith(".safetensors")]
        if not weights and (ggufs := [path / name for name in names if name.lower().endswith(".gguf")]):
            return [(f"part {number}", file) for number, file in enumerate(ggufs)]
        chosen = [name for name in names if name in _SMALL_FILES or name in set(weights)]
        return [(name, path / name) for name in chosen]
    match = _SPLIT.fullmatch(path.name)
    parts = sorted(path.parent.glob(f"{glob.escape(match[1])}-*-of-{match[2]}.gguf")) if match else [path]
    return [(f"part {number}", file) for number, file in enumerate(parts)]


def _is_weight(name: str) -> bool:
    return name.endswith(".safetensors") or name.lower().endswith(".gguf")
