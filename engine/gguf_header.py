"""The header of a GGUF file: metadata and tensor table, without touching the weights.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (version 2 and 3, little endian). The
``gguf`` library reads the same, but builds a numpy view for each of the vocabulary's strings, which takes
seconds; this takes a fraction of one. Needs neither numpy nor torch.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import CheckpointError

MAGIC = b"GGUF"
DEFAULT_ALIGNMENT = 32

_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING, _ARRAY = 8, 9

# GGML type number -> (name, weights in a block, bytes of a block)
TENSOR_TYPES: Mapping[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}


class GgufError(CheckpointError):
    """A file that is no GGUF, or a cut or damaged one."""


@dataclass(frozen=True)
class GgufTensor:
    """One row of the tensor table.

    Attributes:
        name: ``blk.0.attn_q.weight`` ...
        shape: Row-major, outermost first (the file stores it the other way round).
        type: GGML type name (``Q4_1``); ``type 99`` for one that is not in `TENSOR_TYPES`.
        offset: First byte, from the start of the file.
        nbytes: Size in bytes; 0 for an unknown type.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int
    nbytes: int


@dataclass(frozen=True)
class GgufHeader:
    """What a GGUF file says about itself.

    Attributes:
        path: The file.
        metadata: Key -> value; strings are str (invalid UTF-8 replaced), arrays are lists.
        tensors: Name -> row of the tensor table, in file order.
        file_bytes: Size of the file.
        needed_bytes: Where the last tensor ends: a smaller file is cut short.
    """

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]
    file_bytes: int
    needed_bytes: int

    @property
    def architecture(self) -> str:
        """``general.architecture``, or an empty string."""
        return str(self.metadata.get("general.architecture", ""))


class _Cursor:
    """Reads from a buffer and never past its end."""

    def __init__(self, buffer: mmap.mmap, path: Path) -> None:
        self.buffer, self.path, self.at, self.end = buffer, path, 0, len(buffer)

    def scalar(self, layout: str) -> Any:
        size = struct.calcsize(layout)
        if self.at + size > self.end:
            raise GgufError(
                f"{self.path}: the GGUF header is cut short at byte {self.end}; fetch the file again."
            )
        value = struct.unpack_from(layout, self.buffer, self.at)[0]
        self.at += size
        return value

    def count(self, item_bytes: int) -> int:
        """A count of items that must still fit into the file."""
        value: int = self.scalar("<Q")
        if value * item_bytes > self.end - self.at:
            raise GgufError(
                f"{self.path}: the GGUF header is damaged or cut short near byte {self.at}; fetch it again."
            )
        return value

    def string(self) -> str:
        size = self.count(1)
        self.at += size
        return self.buffer[self.at - size : self.at].decode("utf-8", "replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY and depth < 4:
            item = self.scalar("<I")
            if item in _SCALARS:
                letter, size = _SCALARS[item][1], struct.calcsize(_SCALARS[item])
                n = self.count(size)
                self.at += n * size
                return list(struct.unpack_from(f"<{n}{letter}", self.buffer, self.at - n * size))
            return [self.value(item, depth + 1) for _ in range(self.count(8))]
        if kind not in _SCALARS:
            raise GgufError(
                f"{self.path}: unknown GGUF value type {kind} near byte {self.at}; the file is damaged."
            )
        return self.scalar(_SCALARS[kind])


def read_gguf_header(path: Path) -> GgufHeader:
    """Read metadata and tensor table. Cheap: pages of the weights are never touched.

    Raises:
        GgufError: Not a GGUF of a version known here, or its header is cut or damaged.
        OSError: The file cannot be opened.
    """
    with path.open("rb") as file:
        if file.read(4) != MAGIC:
            raise GgufError(f"{path} is not a GGUF file (it does not start with the letters GGUF).")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as buffer:
            return _read(_Cursor(buffer, path))


def _read(cursor: _Cursor) -> GgufHeader:
    cursor.at = len(MAGIC)
    version = cursor.scalar("<I")
    if version not in (2, 3):
        raise GgufError(
            f"{cursor.path} is GGUF version {version}; versions 2 and 3 (little endian) can be read."
        )
    tensor_count, metadata_count = cursor.count(24), cursor.count(12)
    metadata: dict[str, Any] = {}
    for _ in range(metadata_count):
        key = cursor.string()
        metadata[key] = cursor.value(cursor.scalar("<I"))
    rows = []
    for _ in range(tensor_count):
        name, dimensions = cursor.string(), cursor.scalar("<I")
        if dimensions > 8:
            raise GgufError(
                f"{cursor.path}: tensor {name!r} has {dimensions} dimensions; the file is damaged."
            )
        shape = tuple(cursor.scalar("<Q") for _ in range(dimensions))[::-1]
        rows.append((name, shape, cursor.scalar("<I"), cursor.scalar("<Q")))
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment <= 0:
        raise GgufError(f"{cursor.path}: general.alignment is {alignment!r}; the file is damaged.")
    start = -(-cursor.at // alignment) * alignment
    tensors = {name: _tensor(name, shape, kind, start + offset) for name, shape, kind, offset in rows}
    needed = max((t.offset + t.nbytes for t in tensors.values()), default=cursor.at)
    return GgufHeader(cursor.path, metadata, tensors, cursor.end, needed)


def _tensor(name: str, shape: tuple[int, ...], kind: int, offset: int) -> GgufTensor:
    label, block, block_bytes = TENSOR_TYPES.get(kind, (f"type {kind}", 1, 0))
    elements = 1
    for dimension in shape:
        elements *= dimension
    return GgufTensor(name, shape, label, offset, -(-elements // block) * block_bytes)
