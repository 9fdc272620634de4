"""Random blocks of every type of ggml: there is no quantizer of most of them in Python."""

from __future__ import annotations

import gguf
import numpy as np
import torch
from numpy.typing import NDArray

HALVES: dict[str, dict[int, float]] = {
    "Q4_0": {0: 1}, "Q4_1": {0: 1, 2: -7.5}, "Q5_0": {0: 1}, "Q5_1": {0: 1, 2: -15.5}, "Q8_0": {0: 1},
    "Q2_K": {80: 1, 82: 1.5}, "Q3_K": {108: 1}, "Q4_K": {0: 1, 2: 7.5}, "Q5_K": {0: 1, 2: 15.5}, "Q6_K": {208: 1},
    "IQ2_XXS": {0: 1}, "IQ2_XS": {0: 1}, "IQ2_S": {0: 1}, "IQ3_XXS": {0: 1}, "IQ3_S": {0: 1}, "IQ4_XS": {0: 1},
    "IQ4_NL": {0: 1}, "IQ1_S": {0: 1}, "IQ1_M": {}, "TQ1_0": {52: 1}, "TQ2_0": {64: 1},
}  # fmt: skip
"""Where the float16 factors of a block lie, and how large they are for values around zero."""


def random_blocks(
    kind: str, rng: np.random.Generator, rows: int, columns: int, size: float = 0.03, *, signs: bool = True
) -> NDArray[np.uint8]:
    """Blocks ``[rows, bytes]`` of random codes whose values have about the root-mean-square ``size``."""
    number = gguf.GGMLQuantizationType[kind]
    block, block_bytes = gguf.GGML_QUANT_SIZES[number]
    data = rng.integers(0, 256, (rows * columns // block, block_bytes), dtype=np.uint8)
    if kind == "MXFP4":
        data[:, 0] = rng.integers(118, 123, data.shape[0])
        return data.reshape(rows, -1)
    _put(data, kind, np.ones(data.shape[0]))
    plain = gguf.quants.dequantize(data, number)
    factor = (
        size
        / float(np.sqrt(np.square(plain, dtype=np.float64).mean()))
        * rng.uniform(0.7, 1.3, data.shape[0])
    )
    _put(data, kind, factor * (rng.choice([-1, 1], data.shape[0]) if signs else 1))
    return data.reshape(rows, -1)


def _put(data: NDArray[np.uint8], kind: str, d: NDArray[np.float64]) -> None:
    for at, ratio in HALVES[kind].items():
        data[:, at : at + 2] = (d * ratio).astype(np.float16).view(np.uint8).reshape(-1, 2)
    if kind == "IQ1_M":  # a nibble of d at the top of each of the last four words
        words = data[:, 48:56].copy().view(np.uint16)
        bits = d.astype(np.float16).view(np.uint16)
        for n in range(4):
            words[:, n] = (words[:, n] & 0x0FFF) | ((bits >> (4 * n) & 15) << 12)
        data[:, 48:56] = words.view(np.uint8)


def blocks_like(value: torch.Tensor, kind: str) -> NDArray[np.uint8]:
    """Random blocks as large as ``value`` on the whole, ``[..., bytes of a row]``."""
    rng = np.random.default_rng(value.numel() + int(abs(float(value.flatten()[0])) * 1e6))
    rows, columns = value.numel() // value.shape[-1], value.shape[-1]
    data = random_blocks(kind, rng, rows, columns, float(value.square().mean().sqrt()))
    return data.reshape(*value.shape[:-1], -1)
