"""The header of a safetensors file, read and checked without reading a weight.

Layout: 8 bytes little-endian header length, a JSON object of that length, then the data. Each entry gives
``dtype``, ``shape`` and ``data_offsets`` (begin and end, counted from the start of the data).
Source: https://github.com/huggingface/safetensors#format. The library itself is not used for reading because the
kernels want the raw bytes of types that it hands out only as copies, and because its messages do not name the file.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from engine.errors import CheckpointError
from engine.weights.tensor import MappedFile, StoredTensor

MAX_HEADER = 100_000_000
"""The format's own limit for the header's length, in bytes."""

_ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I16": 2, "U16": 2, "F16": 2,
    "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8,
}  # fmt: skip


def read_safetensors(path: Path) -> dict[str, StoredTensor]:
    """Map a safetensors file and list its tensors.

    Raises:
        CheckpointError: The file is missing, cut short or damaged.
    """
    file = MappedFile(path)
    data, size = file.data, file.size
    if size < 8:
        raise CheckpointError(f"{path} is only {size} bytes long; it is cut short: download it again")
    length = int.from_bytes(data[:8].tobytes(), "little")
    if length > MAX_HEADER:
        raise CheckpointError(f"{path} is not a safetensors file (its header claims {length} bytes)")
    if 8 + length > size:
        raise CheckpointError(
            f"{path} ends inside its header ({size} of at least {8 + length} bytes); "
            "it is cut short: download it again"
        )
    try:
        header = json.loads(data[8 : 8 + length].tobytes())
        if not isinstance(header, dict):
            raise TypeError("not an object")
    except (ValueError, TypeError, RecursionError):
        raise CheckpointError(
            f"{path} has a damaged header (it is not a JSON object): download it again"
        ) from None
    header.pop("__metadata__", None)
    base = 8 + length
    tensors = {}
    needed = base
    for name, entry in header.items():
        dtype, shape, begin, end = _parse_entry(path, name, entry)
        item = _ITEM_BYTES.get(dtype)
        if item is not None and end - begin != item * math.prod(shape):
            raise CheckpointError(
                f"{path} has a damaged header: tensor {name} of {dtype} {list(shape)} cannot take "
                f"{end - begin} bytes; download the file again"
            )
        needed = max(needed, base + end)
        tensors[name] = StoredTensor(name, file, dtype, shape, base + begin, base + end)
    if needed > size:
        raise CheckpointError(
            f"{path} is cut short ({size} of {needed} bytes that its header promises): download it again"
        )
    return tensors


def _parse_entry(path: Path, name: str, entry: Any) -> tuple[str, tuple[int, ...], int, int]:
    try:
        dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        numbers = (*shape, begin, end)
        if isinstance(dtype, str) and all(type(n) is int and n >= 0 for n in numbers) and begin <= end:
            return dtype, shape, begin, end
    except (KeyError, TypeError, ValueError):
        pass
    raise CheckpointError(
        f"{path} has a damaged header: the entry of tensor {name[:200]!r} makes no sense; download the file again"
    )
