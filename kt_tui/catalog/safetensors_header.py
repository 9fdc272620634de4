"""Headers of safetensors files and of their index: sizes and types, no weights.

Format: https://github.com/huggingface/safetensors#format. 8 bytes of header length (little endian), a JSON object
name -> {dtype, shape, data_offsets}, then the data.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

INDEX = "model.safetensors.index.json"
_MAX_HEADER = 100_000_000  # the format's own limit, in bytes


class HeaderError(Exception):
    """A file that is not what its name says."""


class TruncatedError(HeaderError):
    """A file that ends before its own header says it should."""


def read_safetensors_header(path: Path) -> Counter[str]:
    """Bytes of data by dtype name.

    Raises:
        TruncatedError: The file is cut short.
        HeaderError: It is no safetensors file.
        OSError: It cannot be read.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or (8 + length > size and length <= _MAX_HEADER):
            raise TruncatedError(
                f"{path} is cut short: {size} of at least {8 + length} bytes; fetch it again"
            )
        if length > _MAX_HEADER:
            raise HeaderError(f"{path} is not a safetensors file; fetch it again")
        raw = file.read(length)
    header = _object(raw, path)
    header.pop("__metadata__", None)
    sizes: Counter[str] = Counter()
    end = 0
    for tensor in header.values():
        try:
            dtype, (start, stop) = tensor["dtype"], tensor["data_offsets"]
            if not (
                isinstance(dtype, str) and type(start) is int and type(stop) is int and 0 <= start <= stop
            ):
                raise ValueError(tensor)
        except (TypeError, KeyError, ValueError) as error:
            raise HeaderError(f"{path} has a damaged header; fetch it again") from error
        sizes[dtype] += stop - start
        end = max(end, stop)
    if 8 + length + end > size:
        raise TruncatedError(f"{path} is cut short: {size} of {8 + length + end} bytes; fetch it again")
    return sizes


def read_index(path: Path) -> set[str]:
    """Names of the files that the index wants beside it.

    Raises:
        HeaderError: The index is damaged, or names a file elsewhere.
        OSError: It cannot be read.
    """
    if path.stat().st_size > _MAX_HEADER:
        raise HeaderError(f"{path} is too long to be an index")
    weight_map = _object(path.read_bytes(), path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise HeaderError(f"{path} has no weight_map; fetch it again")
    names = set(map(str, weight_map.values()))
    for name in names:
        if not is_plain_name(name):
            raise HeaderError(
                f"{path} names a file outside its folder ({name[:80]!r}); do not use this model"
            )
    return names


def is_plain_name(name: str) -> bool:
    """Whether a name from a file stays in that file's own folder."""
    return bool(name) and name not in (".", "..") and "/" not in name and "\0" not in name


def _object(raw: bytes, path: Path) -> dict[str, Any]:
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise HeaderError(f"{path} has a damaged header; fetch it again")
    return document
