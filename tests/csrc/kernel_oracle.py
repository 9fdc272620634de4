"""Float64 reference for the CPU kernels, in numpy alone: fresh weights in each format, what they mean, and bounds."""

from __future__ import annotations

from dataclasses import dataclass

import int_oracle
import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

FLOAT_FORMATS = ("f32", "bf16", "fp8_block128", "fp8_channel", "mxfp8")
BLOCK_FORMATS = tuple(int_oracle.MAKERS)
"""With two numeric modes."""
FORMATS = (*FLOAT_FORMATS, *BLOCK_FORMATS)
WHOLE_BLOCKS = {"mxfp8": 32, **int_oracle.ALIGN}
"""Formats whose columns are a multiple of a block."""


@dataclass(frozen=True)
class Weight:
    """A weight matrix: the checkpoint's bytes, its FP8 scales, and its exact value."""

    fmt: str
    data: NDArray[np.uint8]
    scale: NDArray[np.generic] | None
    value: F64
    terms: F64 | None = None
    """Magnitude of the terms whose sum a value is, where it is computed as one."""

    @property
    def rows(self) -> int:
        return int(self.value.shape[0])

    @property
    def cols(self) -> int:
        return int(self.value.shape[1])


def fp8_e4m3(codes: NDArray[np.uint8]) -> F64:
    """OCP E4M3: 1 sign, 4 exponent (bias 7), 3 mantissa bits; exponent 0 is subnormal; 0x7f and 0xff are NaN."""
    exponent = (codes.astype(np.int64) >> 3) & 15
    mantissa = (codes & 7).astype(np.float64)
    value = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10))
    value = np.where((codes & 0x7F) == 0x7F, np.nan, value)
    return np.where(codes & 0x80, -value, value)


def bf16_round(x: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round to nearest even (finite input)."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def bf16_value(bits: NDArray[np.uint16]) -> F64:
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def finite_codes(rng: np.random.Generator, rows: int, cols: int) -> NDArray[np.uint8]:
    codes = rng.integers(0, 254, (rows, cols), dtype=np.uint8)
    codes[codes >= 0x7F] += 1  # skips 0x7f; 0xff is never drawn
    return codes


def random_weight(rng: np.random.Generator, fmt: str, rows: int, cols: int) -> Weight:
    """Random bytes in a format; FP8 uses all finite codes, subnormals included."""
    if fmt == "f32":
        w = rng.standard_normal((rows, cols)).astype(np.float32)
        return Weight(fmt, w.view(np.uint8).reshape(-1), None, w.astype(np.float64))
    if fmt == "bf16":
        bits = bf16_round(rng.standard_normal((rows, cols)).astype(np.float32))
        return Weight(fmt, bits.view(np.uint8).reshape(-1), None, bf16_value(bits))
    if fmt == "fp8_block128":
        codes = finite_codes(rng, rows, cols)
        scale = (2.0 ** rng.uniform(-12, -6, (-(-rows // 128), -(-cols // 128)))).astype(np.float32)
        expanded = np.repeat(np.repeat(scale, 128, 0), 128, 1)[:rows, :cols]
        return Weight(fmt, codes.reshape(-1), scale, fp8_e4m3(codes) * expanded)
    if fmt == "fp8_channel":
        codes = finite_codes(rng, rows, cols)
        scale = (2.0 ** rng.uniform(-12, -6, rows)).astype(np.float32)
        return Weight(fmt, codes.reshape(-1), scale, fp8_e4m3(codes) * scale[:, None].astype(np.float64))
    if fmt == "mxfp8":
        codes = finite_codes(rng, rows, cols)
        exponents = rng.integers(110, 135, (rows, cols // 32), dtype=np.uint8)
        value = fp8_e4m3(codes) * np.repeat(2.0 ** (exponents.astype(np.float64) - 127), 32, 1)
        return Weight(fmt, codes.reshape(-1), exponents, value)
    data, scale, value, terms = int_oracle.MAKERS[fmt](rng, rows, cols)
    return Weight(fmt, np.ascontiguousarray(data), scale, value, terms)


MOST_FEW_ROWS = 4
"""With more rows of an expert than this, formats of integers in exact mode may go through bfloat16."""


def bf16_rounding(fmt: str, isa: str, rows: int) -> float:
    """Largest relative error that rounding to bfloat16 (8 significant bits) adds to a product."""
    if isa not in {"avx512_bf16", "amx"} or fmt == "f32":
        return 0.0
    if fmt in FLOAT_FORMATS:
        # With tiles, the weights of a block-scaled format are rounded as well, scale included.
        return 2.0**-8 * (2 if isa == "amx" and fmt == "fp8_block128" else 1)
    # Weights and activations alike.
    return 0.0 if rows <= MOST_FEW_ROWS else 2.0**-7


def linear_bound(weight: Weight, x: NDArray[np.float32], isa: str, mode: str) -> F64:
    """Largest error allowed, per output: rounding of activations plus float32 sums.

    A float32 sum of n products in any order errs by at most about n * 2^-24 * sum |w||x|; rounding errors are
    independent enough that the square root of n, times a safety factor, bounds them in practice, but we allow the
    full first-order term for short sums. bf16 has 8 significant bits, so rounding adds 2^-8 |x|; int8 activations add
    half a step per block.
    """
    magnitude = np.abs(x.astype(np.float64)) @ np.abs(weight.value).T
    terms = magnitude if weight.terms is None else np.abs(x.astype(np.float64)) @ weight.terms.T
    bound = (4 + 2 * np.sqrt(weight.cols)) * 2.0**-24 * terms
    if weight.fmt in BLOCK_FORMATS:
        t = x.shape[0]
        steps = 127 if mode == "fast" else 254 * 127
        step = np.abs(x.astype(np.float64)).reshape(t, -1, 32).max(axis=2) / steps
        row_sums = np.abs(weight.value).reshape(weight.rows, -1, 32).sum(axis=2)
        bound = bound + 0.5001 * step @ row_sums.T
    return bound + bf16_rounding(weight.fmt, isa, x.shape[0]) * magnitude + 1e-30


SILU = (np.inf, 1.0, 0.0)


def silu(x: F64) -> F64:
    return x * 0.5 * (1 + np.tanh(x / 2))


def block_sums(matrix: F64) -> F64:
    """Sums of magnitudes of 32 columns, ``[rows, blocks]``; the last block may be partial."""
    return np.add.reduceat(np.abs(matrix), np.arange(0, matrix.shape[1], 32), axis=1)


def block_peaks(rows: F64) -> F64:
    """Largest magnitude of 32 columns, ``[rows, blocks]``."""
    return np.maximum.reduceat(np.abs(rows), np.arange(0, rows.shape[1], 32), axis=1)


def experts_forward(
    gate: list[Weight],
    up: list[Weight],
    down: list[Weight],
    x: NDArray[np.float32],
    ids: NDArray[np.int32],
    weights: NDArray[np.float32],
    gating: tuple[float, float, float] = SILU,
    biases: list[list[F64]] | None = None,
) -> tuple[F64, F64, F64]:
    """The exact result and two magnitudes that errors scale with.

    ``gating`` is (limit, alpha, shift); ``biases`` are of gate, up and down for each expert.

    The first is the same sum over absolute values, for roundings relative to each number; the second is what comes of
    an error of half the largest of each 32 activations, for integer activations.
    """
    y = np.zeros((x.shape[0], x.shape[1]))
    size, step = np.zeros_like(y), np.zeros_like(y)
    limit, alpha, shift = gating
    wide = x.astype(np.float64)
    for expert in range(len(gate)):
        tokens, choices = np.nonzero(ids == expert)
        if not len(tokens):
            continue
        rows, factor = wide[tokens], weights[tokens, choices].astype(np.float64)[:, None]
        g_w, u_w, d_w = gate[expert].value, up[expert].value, down[expert].value
        g_b, u_b, d_b = biases[expert] if biases else (0.0, 0.0, 0.0)
        g, u = np.minimum(rows @ g_w.T + g_b, limit), np.clip(rows @ u_w.T + u_b, -limit, limit) + shift
        gate_value = silu(alpha * g) / alpha
        h = gate_value * u
        np.add.at(y, tokens, factor * (h @ d_w.T + d_b))
        # |d silu| <= 1.1 |dg|, so an error of one part in a gate or up sum grows by at most this. Limits and alpha
        # change nothing about that.
        h_size = 1.1 * (np.abs(rows) @ np.abs(g_w).T + np.abs(g_b)) * np.abs(u) + np.abs(gate_value) * (
            np.abs(rows) @ np.abs(u_w).T + np.abs(u_b) + abs(shift)
        )
        np.add.at(size, tokens, np.abs(factor) * (h_size @ np.abs(d_w).T + np.abs(d_b)))
        peaks = 0.5 * block_peaks(rows)
        h_step = 1.1 * (peaks @ block_sums(g_w).T) * np.abs(u) + np.abs(gate_value) * (
            peaks @ block_sums(u_w).T
        )
        total = h_step @ np.abs(d_w).T + 0.5 * block_peaks(h) @ block_sums(d_w).T
        np.add.at(step, tokens, np.abs(factor) * total)
    return y, size, step


def experts_bound(size: F64, step: F64, fmt: str, isa: str, width: int, mode: str, rows: int) -> F64:
    """Largest error allowed, from `experts_forward`'s magnitudes: float32 sums of up to ``width`` products, and what
    activations are rounded to where one expert has up to ``rows`` rows."""
    unit = (4 + 2 * np.sqrt(width)) * 2.0**-24 + bf16_rounding(fmt, isa, rows)
    bound = 2 * unit * size
    if fmt in BLOCK_FORMATS:
        # Terms are larger than their sum where a value has an offset; of two errors, the product counts a little, too.
        bound = 8 * bound + 1.2 * step / (127 if mode == "fast" else 254 * 127)
    return bound + 1e-30
