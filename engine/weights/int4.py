"""4-bit integers with scales for groups of columns, as compressed-tensors and GPTQ store them in several tensors.

Sources: compressed-tensors' ``pack_to_int32`` (format ``pack-quantized``) and AutoGPTQ's ``QuantLinear.pack``. In both
a number is ``(q - 8) * scale``, q from 0 to 15, and word w of a row holds q of columns ``8w..8w+7``, the first in its
lowest bits. compressed-tensors lays the words of a row side by side, GPTQ below each other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

_SHIFTS = np.arange(8, dtype=np.uint32) * 4
COMPRESSED_GROUP, GPTQ_GROUP = 32, 128
"""Columns that share a scale."""


def by_rows(raw: Bytes, scale: NDArray[np.uint16], rows: int, columns: int) -> Floats:
    """The float32 values ``[rows, columns]`` of compressed-tensors' words; scales are bfloat16 ``[rows, groups]``."""
    words = raw.reshape(-1).view(np.uint32).reshape(rows, columns // 8)
    factors = (scale.astype(np.uint32) << 16).view(np.float32)
    return _values(words, np.repeat(factors, COMPRESSED_GROUP, axis=1))


def by_columns(raw: Bytes, scale: NDArray[np.uint16], rows: int, columns: int) -> Floats:
    """The float32 values ``[rows, columns]`` of GPTQ's words; scales are float16 ``[groups, rows]``."""
    words = raw.reshape(-1).view(np.uint32).reshape(columns // 8, rows).T
    factors = scale.view(np.float16).astype(np.float32).T
    return _values(words, np.repeat(factors, GPTQ_GROUP, axis=1))


def _values(words: NDArray[np.uint32], factors: Floats) -> Floats:
    numbers = ((words[:, :, None] >> _SHIFTS) & 15).reshape(factors.shape)
    values: Floats = (numbers.astype(np.float32) - 8) * factors
    return values
