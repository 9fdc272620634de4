"""The storage formats of weights, one row each.

Sources: the safetensors header's dtype names, and the block layouts of ggml (``ggml-common.h``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.weights import int4

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Scales = NDArray[np.float32] | NDArray[np.uint16]
"""Factors of weights: numbers, or the bits of bfloat16 or float16, as the format has it."""

KernelFormat: TypeAlias = Literal[
    "f32",
    "bf16",
    "fp8_block128",
    "fp8_channel",
    "int4_g32",
    "int4_g128",
    "mxfp4",
    "q4_0",
    "q4_1",
    "q8_0",
    "q4_k",
    "q5_k",
    "q6_k",
]
"""Names under which `engine.cpu` knows the formats that it multiplies with."""

FP8_BLOCK = 128
"""Rows and columns that share one scale in an FP8 checkpoint; blocks at the edges may be partial."""


@dataclass(frozen=True, slots=True)
class Format:
    """How numbers lie in bytes.

    Attributes:
        name: The name used throughout the engine.
        block: Numbers in a block; rows are whole blocks.
        block_bytes: Bytes of a block.
        safetensors: The dtype's name in a safetensors header, or None.
        gguf: The type's name in a GGUF file, or None.
        kernel: The name under which `engine.cpu` multiplies with it, or None: then it is converted at load.
        scale: What each number of a second tensor scales: a block of 128x128, a row, or a group of a row's columns
            (``group_first``: stored with the columns as the slower dimension); None without such a tensor.
        becomes: What it is converted to if no kernel multiplies with it (`engine.weights.convert` says how exactly).
    """

    name: str
    block: int
    block_bytes: int
    safetensors: str | None
    gguf: str | None
    kernel: KernelFormat | None
    scale: Literal["block", "row", "group", "group_first"] | None = None
    becomes: KernelFormat = "f32"

    @property
    def kept(self) -> KernelFormat:
        """The format that matrices stored in this one have in memory."""
        return self.kernel or self.becomes

    def nbytes(self, count: int) -> int:
        """Bytes of ``count`` numbers, a multiple of `block`."""
        return count // self.block * self.block_bytes


F32 = Format("F32", 1, 4, "F32", "F32", "f32")
F16 = Format("F16", 1, 2, "F16", "F16", None)
BF16 = Format("BF16", 1, 2, "BF16", "BF16", "bf16")
FP8 = Format("FP8", 1, 1, "F8_E4M3", None, "fp8_block128", scale="block")
FP8_ROWS = Format("FP8 with a scale for each row", 1, 1, None, None, "fp8_channel", scale="row")
"""Told from `FP8` by the name of its scales; the header's dtype is the same."""
Q4_0 = Format("Q4_0", 32, 18, None, "Q4_0", "q4_0")
Q4_1 = Format("Q4_1", 32, 20, None, "Q4_1", "q4_1")
Q8_0 = Format("Q8_0", 32, 34, None, "Q8_0", "q8_0")
Q4_K = Format("Q4_K", 256, 144, None, "Q4_K", "q4_k")
Q5_K = Format("Q5_K", 256, 176, None, "Q5_K", "q5_k")
Q6_K = Format("Q6_K", 256, 210, None, "Q6_K", "q6_k")

INT4_G32 = Format("int4 in groups of 32", 32, 16, None, None, "int4_g32", scale="group")
INT4_G128 = Format("int4 in groups of 128", 128, 64, None, None, "int4_g128", scale="group_first")
"""compressed-tensors' and GPTQ's, known by the names of their tensors (`engine.weights.int4`)."""


def _converted(name: str, block: int, block_bytes: int, becomes: KernelFormat) -> Format:
    return Format(name, block, block_bytes, None, name, None, becomes=becomes)


MXFP4 = Format("MXFP4", 32, 17, None, "MXFP4", None, becomes="mxfp4")
"""One byte of scale before 16 of codes; the kernels' sources have the scales apart and other pairs of columns."""

CONVERTED = (
    F16,
    MXFP4,
    _converted("F64", 1, 8, "f32"),
    _converted("Q5_0", 32, 22, "q8_0"),
    _converted("Q5_1", 32, 24, "q8_0"),
    _converted("Q2_K", 256, 84, "q8_0"),
    _converted("Q3_K", 256, 110, "q6_k"),
    _converted("IQ1_S", 256, 50, "q6_k"),
    _converted("IQ1_M", 256, 56, "q6_k"),
    _converted("IQ2_XXS", 256, 66, "q8_0"),
    _converted("IQ2_XS", 256, 74, "q8_0"),
    _converted("IQ2_S", 256, 82, "q8_0"),
    _converted("IQ3_XXS", 256, 98, "q8_0"),
    _converted("IQ3_S", 256, 110, "q6_k"),
    _converted("IQ4_NL", 32, 18, "q8_0"),
    _converted("IQ4_XS", 256, 136, "q8_0"),
    _converted("TQ1_0", 256, 54, "q4_0"),
    _converted("TQ2_0", 256, 66, "q4_0"),
)
"""Formats of files that no kernel multiplies with."""

FORMATS = (F32, BF16, FP8, Q4_0, Q4_1, Q8_0, Q4_K, Q5_K, Q6_K, *CONVERTED)
BY_SAFETENSORS = {row.safetensors: row for row in FORMATS if row.safetensors}
BY_GGUF = {row.gguf: row for row in FORMATS if row.gguf}


def _q4_0(blocks: Bytes) -> Floats:
    """Scale (float16), then 16 bytes: low nibbles are numbers 0..15, high ones 16..31, all with 8 added."""
    scale = blocks[:, 0:2].copy().view(np.float16).astype(np.float32)
    nibbles = np.concatenate([blocks[:, 2:] & 0x0F, blocks[:, 2:] >> 4], axis=1)
    return (nibbles.astype(np.float32) - 8) * scale


def _q4_1(blocks: Bytes) -> Floats:
    """Scale and minimum (float16), then 16 bytes: low nibbles are numbers 0..15, high ones 16..31."""
    scale = blocks[:, 0:2].copy().view(np.float16).astype(np.float32)
    minimum = blocks[:, 2:4].copy().view(np.float16).astype(np.float32)
    nibbles = np.concatenate([blocks[:, 4:] & 0x0F, blocks[:, 4:] >> 4], axis=1)
    return nibbles.astype(np.float32) * scale + minimum


def _q8_0(blocks: Bytes) -> Floats:
    """Scale (float16), then 32 signed bytes."""
    scale = blocks[:, 0:2].copy().view(np.float16).astype(np.float32)
    return blocks[:, 2:].copy().view(np.int8).astype(np.float32) * scale


_DECODERS = {"Q4_0": _q4_0, "Q4_1": _q4_1, "Q8_0": _q8_0}


def _fp8_values() -> Floats:
    """The 256 values of float8 e4m3fn: bias 7, no infinities, 0x7F and 0xFF are not numbers."""
    code = np.arange(256)
    exponent, mantissa = (code >> 3) & 15, (code & 7).astype(np.float64)
    value = np.where(exponent == 0, mantissa * 2.0**-9, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0))
    value[(code & 0x7F) == 0x7F] = np.nan
    return np.where(code & 0x80, -value, value).astype(np.float32)


_FP8_VALUES = _fp8_values()


def dequantize(stored: Format, raw: Bytes, rows: int, columns: int, scale: Scales | None = None) -> Floats:
    """The float32 values ``[rows, columns]`` of row-major bytes.

    Args:
        stored: The format of ``raw``.
        raw: The bytes, of any shape.
        rows: Rows.
        columns: Columns, a multiple of the format's block.
        scale: For FP8 the factors, ``[ceil(rows/128), ceil(columns/128)]`` or, one for each row, ``[rows]``; for int4
            bfloat16 bits ``[rows, columns/32]`` or float16 bits ``[columns/128, rows]``.
    """
    flat = np.ascontiguousarray(raw).reshape(-1)
    values: Floats
    if scale is not None and scale.dtype == np.uint16:
        decode_int4 = int4.by_rows if stored is INT4_G32 else int4.by_columns
        return decode_int4(flat, scale.view(np.uint16), rows, columns)
    if stored is F32:
        values = flat.view(np.float32).astype(np.float32)
    elif stored is F16:
        values = flat.view(np.float16).astype(np.float32)
    elif stored is BF16:
        values = (flat.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    elif stored is FP8 or stored is FP8_ROWS:
        values = _FP8_VALUES[flat]
    elif stored.name == "F64":
        values = flat.view(np.float64).astype(np.float32)
    elif decode := _DECODERS.get(stored.name):
        values = decode(flat.reshape(-1, stored.block_bytes))
    else:
        # Imported here, so that other checkpoints need not wait for it.
        from gguf import GGMLQuantizationType, quants

        values = quants.dequantize(flat.reshape(rows, -1), GGMLQuantizationType[stored.name])
    matrix: Floats = values.reshape(rows, columns)
    if scale is not None and stored.scale == "row":
        matrix = matrix * scale[:, None]
    elif scale is not None:
        factors = np.repeat(np.repeat(scale, FP8_BLOCK, axis=0)[:rows], FP8_BLOCK, axis=1)[:, :columns]
        matrix = matrix * factors
    return matrix
