"""Fresh weights in the formats of integers and what they mean, in numpy alone.

Sources of the layouts: compressed-tensors' pack-quantized int4, GPTQ without act-order, OCP MXFP4 as gpt-oss stores
it, and ggml-common.h. Each function returns the bytes of a checkpoint, its scales (or None), the exact values, and the
magnitude of the terms whose sum a value is (integer times factor, and minimum), from which rounding errors follow.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
Made = tuple[NDArray[np.uint8], NDArray[np.generic] | None, F64, F64]

ALIGN = {
    "int4_g32": 32,
    "int4_g128": 128,
    "mxfp4": 32,
    "q4_0": 32,
    "q4_1": 32,
    "q8_0": 32,
    "q4_k": 256,
    "q5_k": 256,
    "q6_k": 256,
}
"""Formats and the number of columns that they store together."""


def bf16(bits: NDArray[np.uint16]) -> F64:
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def halves(rng: np.random.Generator, *shape: int) -> NDArray[np.float16]:
    """Scales of both signs, some of them subnormal."""
    size = 10.0 ** rng.uniform(-3, -1, shape)
    size[rng.random(shape) < 0.05] = 3e-6
    return (size * rng.choice([-1, 1], shape)).astype(np.float16)


def offset(q: NDArray[np.generic], factor: F64, zero: int) -> tuple[F64, F64]:
    return (q.astype(np.float64) - zero) * factor, (q.astype(np.float64) + zero) * np.abs(factor)


def columns_of_neighbours(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Two columns a byte, the first in the low nibble: ``[..., n]`` to ``[..., 2n]``."""
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)


def int4_g32(rng: np.random.Generator, rows: int, cols: int) -> Made:
    packed = rng.integers(0, 256, (rows, cols // 2), dtype=np.uint8)
    scale = (halves(rng, rows, cols // 32).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    value, size = offset(columns_of_neighbours(packed), np.repeat(bf16(scale), 32, 1), 8)
    return packed.reshape(-1), scale, value, size


def int4_g128(rng: np.random.Generator, rows: int, cols: int) -> Made:
    q = rng.integers(0, 16, (rows, cols), dtype=np.uint8)
    shifts = np.arange(8, dtype=np.uint32) * 4
    words = (q.reshape(rows, -1, 8).astype(np.uint32) << shifts).sum(axis=2, dtype=np.uint32).T
    scale = halves(rng, cols // 128, rows)
    value, size = offset(q, np.repeat(scale.astype(np.float64).T, 128, 1), 8)
    return np.ascontiguousarray(words).view(np.uint8).reshape(-1), scale.view(np.uint16), value, size


def mxfp4(rng: np.random.Generator, rows: int, cols: int) -> Made:
    packed = rng.integers(0, 256, (rows, cols // 2), dtype=np.uint8)
    exponents = rng.integers(110, 135, (rows, cols // 32), dtype=np.uint8)
    exponents[rng.random(exponents.shape) < 0.03] = 0
    codes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    table = np.concatenate([codes, -codes])
    factor = np.repeat(2.0 ** (exponents.astype(np.float64) - 127), 32, 1)
    q = table[columns_of_neighbours(packed)]
    return packed.reshape(-1), exponents, q * factor, (np.abs(q) + 12) * factor


def q4_0(rng: np.random.Generator, rows: int, cols: int) -> Made:
    d = halves(rng, rows, cols // 32, 1)
    packed = rng.integers(0, 256, (rows, cols // 32, 16), dtype=np.uint8)
    q = np.concatenate([packed & 15, packed >> 4], axis=2)
    value, size = offset(q, d.astype(np.float64), 8)
    return np.concatenate([d.view(np.uint8), packed], axis=2).reshape(-1), None, *flat(rows, value, size)


def q4_1(rng: np.random.Generator, rows: int, cols: int) -> Made:
    d, m = halves(rng, rows, cols // 32, 1), rng.uniform(-1, 0.1, (rows, cols // 32, 1)).astype(np.float16)
    packed = rng.integers(0, 256, (rows, cols // 32, 16), dtype=np.uint8)
    q = np.concatenate([packed & 15, packed >> 4], axis=2)
    low = m.astype(np.float64)
    value, size = offset(q, d.astype(np.float64), 0)
    data = np.concatenate([d.view(np.uint8), m.view(np.uint8), packed], axis=2)
    return data.reshape(-1), None, *flat(rows, value + low, size + np.abs(low))


def q8_0(rng: np.random.Generator, rows: int, cols: int) -> Made:
    d = halves(rng, rows, cols // 32, 1)
    q = rng.integers(-128, 128, (rows, cols // 32, 32), dtype=np.int8)
    value = d.astype(np.float64) * q
    return (
        np.concatenate([d.view(np.uint8), q.view(np.uint8)], axis=2).reshape(-1),
        None,
        *flat(rows, value, np.abs(value)),
    )


def six_bit_scales(packed: NDArray[np.uint8]) -> tuple[F64, F64]:
    """Scales and minima of 8 sub-blocks out of ``[..., 12]`` bytes."""
    low, mid, high = packed[..., 0:4], packed[..., 4:8], packed[..., 8:12]
    scales = np.concatenate([low & 63, (high & 15) | (low >> 6 << 4)], axis=-1)
    minima = np.concatenate([mid & 63, (high >> 4) | (mid >> 6 << 4)], axis=-1)
    return scales.astype(np.float64), minima.astype(np.float64)


def k45(rng: np.random.Generator, rows: int, cols: int, *, five: bool) -> Made:
    shape = (rows, cols // 256)
    d, dmin = halves(rng, *shape, 1), halves(rng, *shape, 1)
    packed = rng.integers(0, 256, (*shape, 12), dtype=np.uint8)
    upper = rng.integers(0, 256, (*shape, 32), dtype=np.uint8)
    nibbles = rng.integers(0, 256, (*shape, 128), dtype=np.uint8)
    quarters = nibbles.reshape(*shape, 4, 32)
    q = np.stack([quarters & 15, quarters >> 4], axis=3).reshape(*shape, 8, 32).astype(np.float64)
    if five:
        q += 16.0 * ((upper[..., None, :] >> np.arange(8, dtype=np.uint8)[:, None]) & 1)
    scales, minima = six_bit_scales(packed)
    product = (d.astype(np.float64) * scales)[..., None] * q
    low = (dmin.astype(np.float64) * minima)[..., None]
    parts = [d.view(np.uint8), dmin.view(np.uint8), packed, *([upper] if five else []), nibbles]
    data = np.concatenate(parts, axis=2).reshape(-1)
    return data, None, *flat(rows, product - low, np.abs(product) + np.abs(low))


def q4_k(rng: np.random.Generator, rows: int, cols: int) -> Made:
    return k45(rng, rows, cols, five=False)


def q5_k(rng: np.random.Generator, rows: int, cols: int) -> Made:
    return k45(rng, rows, cols, five=True)


def q6_k(rng: np.random.Generator, rows: int, cols: int) -> Made:
    shape = (rows, cols // 256)
    low = rng.integers(0, 256, (*shape, 128), dtype=np.uint8)
    upper = rng.integers(0, 256, (*shape, 64), dtype=np.uint8)
    scales = rng.integers(-128, 128, (*shape, 16), dtype=np.int8)
    d = halves(rng, *shape, 1)
    pairs = low.reshape(*shape, 2, 1, 2, 32)
    q = np.concatenate([pairs & 15, pairs >> 4], axis=3).reshape(*shape, 2, 4, 32)
    two_bits = (upper.reshape(*shape, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None]) & 3
    q = (q | (two_bits << 4)).reshape(*shape, 16, 16)
    value, size = offset(q, (d.astype(np.float64) * scales)[..., None], 32)
    data = np.concatenate([low, upper, scales.view(np.uint8), d.view(np.uint8)], axis=2)
    return data.reshape(-1), None, *flat(rows, value, size)


def flat(rows: int, value: F64, size: F64) -> tuple[F64, F64]:
    return value.reshape(rows, -1), size.reshape(rows, -1)


MAKERS: dict[str, Callable[[np.random.Generator, int, int], Made]] = {
    "int4_g32": int4_g32,
    "int4_g128": int4_g128,
    "mxfp4": mxfp4,
    "q4_0": q4_0,
    "q4_1": q4_1,
    "q8_0": q8_0,
    "q4_k": q4_k,
    "q5_k": q5_k,
    "q6_k": q6_k,
}
