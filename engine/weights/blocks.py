"""Blocks of ggml written in another of its formats: where the numbers are whole multiples of a step, exactly.

Most of ggml's types hold small integers times a step that a few columns share. Where a format that the kernels know
has room for these integers and that step, the weights keep their value; where only the step has to be rounded to
float16, they change by 2^-11 of themselves at most. The layouts are those of ``ggml-common.h``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.weights.formats import Bytes, Floats, KernelFormat

Encode = Callable[[Bytes, Floats], Bytes]
"""Blocks of the source ``[n, bytes]`` and their values ``[n, numbers]`` to blocks of the target."""

BLOCK, SUPER, HALF = 32, 256, 16


@dataclass(frozen=True, slots=True)
class Target:
    """A format that weights are converted to.

    Attributes:
        block: Numbers in a block.
        block_bytes: Bytes of a block.
        said: What a user reads.
    """

    block: int
    block_bytes: int
    said: str


TARGETS: Mapping[KernelFormat, Target] = {
    "f32": Target(1, 4, "float32"),
    "q4_0": Target(32, 18, "Q4_0"),
    "q8_0": Target(32, 34, "int8 with one scale for 32 columns"),
    "q5_k": Target(256, 176, "Q5_K"),
    "q6_k": Target(256, 210, "Q6_K"),
}


def _half(blocks: Bytes, at: int) -> Floats:
    """The float16 at a byte of each block, ``[n, 1]``."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view(np.float16).astype(np.float32)


def _words(blocks: Bytes, at: int, end: int, kind: type[np.unsignedinteger]) -> NDArray[np.int64]:
    return np.ascontiguousarray(blocks[:, at:end]).view(kind).astype(np.int64)


def _nibbles(packed: Bytes) -> NDArray[np.int64]:
    """Low half first, ``[n, 2 * bytes]``."""
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(packed.shape[0], -1).astype(np.int64)


def _whole(values: Floats, step: Floats, low: int, high: int) -> NDArray[np.int8]:
    """How often the step, ``[n, groups]``, goes into each value, ``[n, groups, columns]``; zero where it is zero."""
    inverse = np.divide(1, step, out=np.zeros_like(step), where=step != 0)
    counted = np.rint(values * inverse[..., None])
    return np.clip(counted, low, high, out=counted).astype(np.int8)


def q8_0(values: Floats, step: Floats) -> Bytes:
    """Write Q8_0: float16 step, 32 signed bytes.

    Args:
        values: ``[n, numbers]``.
        step: ``[n, numbers / 32]``.
    """
    step = step.reshape(-1, 1)
    codes = _whole(values.reshape(-1, 1, BLOCK), step, -128, 127)
    return np.concatenate([_stored(step), codes.reshape(-1, BLOCK).view(np.uint8)], axis=1)


def q8_0_nearest(_: Bytes, values: Floats) -> Bytes:
    """Write Q8_0 of any values; each is off by half a 127th of the largest in its block."""
    rows = values.reshape(-1, BLOCK)
    step = (np.maximum(rows.max(1), -rows.min(1)) / 127).astype(np.float16).astype(np.float32)
    return q8_0(values, step)


def q4_0(values: Floats, step: Floats) -> Bytes:
    """Write Q4_0: float16 step, 16 bytes, low nibbles for columns 0-15; codes have 8 added. Sizes as for `q8_0`."""
    step = step.reshape(-1, 1)
    codes = (_whole(values.reshape(-1, 1, BLOCK), step, -8, 7).reshape(-1, BLOCK) + 8).view(np.uint8)
    return np.concatenate([_stored(step), codes[:, :16] | codes[:, 16:] << 4], axis=1)


def q6_k(values: Floats, d: Floats, scale: NDArray[np.int64]) -> Bytes:
    """Write Q6_K: 128 bytes of low nibbles, 64 of upper bits, 16 signed scales, float16 d.

    Args:
        values: ``[n, 256]``.
        d: ``[n, 1]``.
        scale: ``[n, 16]``, from -128 to 127: value = d * scale * code, codes from -32 to 31.
    """
    codes = _whole(values.reshape(-1, 16, HALF), d * scale.astype(np.float32), -32, 31)
    return _q6_k_of_codes((codes + 32).view(np.uint8), d.astype(np.float16).view(np.uint8), scale)


def _q6_k_of_codes(codes: Bytes, d: Bytes, scale: NDArray[np.int64]) -> Bytes:
    """Codes from 0 to 63 in the order of their columns, the bytes of d, scales."""
    # Halves of 128, each four rows of 32.
    rows = codes.reshape(-1, 2, 4, 32)
    low, upper = rows & 15, rows >> 4
    nibbles = np.concatenate([low[:, :, 0] | low[:, :, 2] << 4, low[:, :, 1] | low[:, :, 3] << 4], axis=-1)
    bits = upper[:, :, 0] | upper[:, :, 1] << 2 | upper[:, :, 2] << 4 | upper[:, :, 3] << 6
    count = rows.shape[0]
    parts = [nibbles.reshape(count, 128), bits.reshape(count, 64), scale.astype(np.int8).view(np.uint8), d]
    return np.concatenate(parts, axis=1)


def _stored(step: Floats) -> Bytes:
    return step.astype(np.float16).view(np.uint8)


def _q5_k_of_q4_k(blocks: Bytes) -> Bytes:
    """The same numbers with a fifth bit that is zero, behind the scales."""
    return np.concatenate([blocks[:, :16], np.zeros((blocks.shape[0], 32), np.uint8), blocks[:, 16:]], axis=1)


def _one_step(write: Callable[[Floats, Floats], Bytes], at: int) -> Encode:
    """For types with one float16 step a block, at byte ``at``."""

    def encode(blocks: Bytes, values: Floats) -> Bytes:
        return write(values, np.repeat(_half(blocks, at), values.shape[1] // BLOCK, axis=1))

    return encode


def _iq4_codes(packed: Bytes) -> Bytes:
    """Bytes ``[n, 16]`` of nibbles, low ones for columns 0-15, to codes ``[n, 32]``."""
    out = np.empty((packed.shape[0], BLOCK), np.uint8)
    for half, table in enumerate((_IQ4[np.arange(256) & 15], _IQ4[np.arange(256) >> 4])):
        out[:, 16 * half : 16 * half + 16] = np.take(table, packed)
    return out


_IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8).view(
    np.uint8
)


def _iq4_nl(blocks: Bytes) -> Bytes:
    """d, then nibbles that number the values of a table."""
    return np.concatenate([blocks[:, :2], _iq4_codes(blocks[:, 2:])], axis=1)


def _iq4_xs(blocks: Bytes) -> Bytes:
    """d, 16 bits with the upper two bits of eight scales, their nibbles; 32 is added to the scales."""
    upper = _words(blocks, 2, 4, np.uint16) >> (2 * np.arange(8)) & 3
    step = _half(blocks, 0) * ((_nibbles(blocks[:, 4:8]) | upper << 4) - 32).astype(np.float32)
    return np.concatenate([_stored(step.reshape(-1, 1)), _iq4_codes(blocks[:, 8:].reshape(-1, 16))], axis=1)


def _q5_0(blocks: Bytes) -> Bytes:
    """d, a word of fifth bits, nibbles; 16 is added to the codes."""
    fifth = np.unpackbits(np.ascontiguousarray(blocks[:, 2:6]), axis=1, bitorder="little")
    nibbles = np.concatenate([blocks[:, 6:] & 15, blocks[:, 6:] >> 4], axis=1)
    return np.concatenate([blocks[:, :2], (nibbles | fifth << 4) - np.uint8(16)], axis=1)


def _q3_k(blocks: Bytes) -> Bytes:
    """Upper bits, two lower ones, scales of six bits: nibbles in 8 bytes and upper bits in 4; d.

    The scales have 32 added, the codes 4.
    """
    low, upper = blocks[:, 96:104], blocks[:, 104:108]
    nibbles = np.concatenate([low & 15, low >> 4], axis=1).astype(np.int64)
    bits = np.concatenate([upper >> shift & 3 for shift in (0, 2, 4, 6)], axis=1).astype(np.int64)
    pairs = blocks[:, 32:96].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8).reshape(4, 1) & 3
    third = blocks[:, :32].reshape(-1, 1, 1, 32) >> np.arange(8, dtype=np.uint8).reshape(2, 4, 1) & 1
    codes = (pairs | third << 2).astype(np.uint8) + np.uint8(32 - 4)
    return _q6_k_of_codes(codes, blocks[:, 108:], (nibbles | bits << 4) - 32)


def _iq2_xxs(blocks: Bytes, values: Floats) -> Bytes:
    """d, then for 32 columns two words, the second with four bits of scale at its top."""
    scale = _words(blocks, 2, 66, np.uint32)[:, 1::2] >> 28
    return q8_0(values, _half(blocks, 0) * ((2 * scale + 1) / 8).astype(np.float32))


def _iq3_xxs(blocks: Bytes, values: Floats) -> Bytes:
    """d, 64 bytes of indices, a word for 32 columns with four bits of scale at its top."""
    scale = _words(blocks, 66, 98, np.uint32) >> 28
    return q8_0(values, _half(blocks, 0) * ((2 * scale + 1) / 4).astype(np.float32))


def _mxfp4(blocks: Bytes, values: Floats) -> Bytes:
    """Codes are halves, from -12 to 12 of them, of 2^(e - 127)."""
    return q8_0(values, np.ldexp(np.float32(1), blocks[:, :1].astype(np.int32) - 128))


def _iq3_s(blocks: Bytes, values: Floats) -> Bytes:
    """First d, at the end nibbles of scale for 32 columns each."""
    return q6_k(values, _half(blocks, 0), np.repeat(2 * _nibbles(blocks[:, 106:110]) + 1, 2, axis=1))


def _iq1_s(blocks: Bytes, values: Floats) -> Bytes:
    """Codes are eighths, from -9 to 9 of them; three bits of scale in each of the last eight 16-bit words."""
    scale = _words(blocks, 34, 50, np.uint16) >> 12 & 7
    return q6_k(values, _half(blocks, 0) * np.float32(0.125), np.repeat(2 * scale + 1, 2, axis=1))


def _iq1_m(blocks: Bytes, values: Floats) -> Bytes:
    """As IQ1_S; the last four words hold three bits of scale for each 16 columns, and a nibble each of d."""
    words = _words(blocks, 48, 56, np.uint16)
    bits = (
        (words[:, :1] >> 12)
        | (words[:, 1:2] >> 12 << 4)
        | (words[:, 2:3] >> 12 << 8)
        | (words[:, 3:] >> 12 << 12)
    )
    d = bits.astype(np.uint16).view(np.float16).astype(np.float32)
    scale = (words[:, :, None] >> (3 * np.arange(4)) & 7).reshape(-1, 16)
    return q6_k(values, d * np.float32(0.125), 2 * scale + 1)


DIRECT: Mapping[tuple[str, KernelFormat], Callable[[Bytes], Bytes]] = {
    ("Q5_0", "q8_0"): _q5_0,
    ("IQ4_NL", "q8_0"): _iq4_nl,
    ("IQ4_XS", "q8_0"): _iq4_xs,
    ("Q3_K", "q6_k"): _q3_k,
    ("Q4_K", "q5_k"): _q5_k_of_q4_k,
}
"""Ways that look at the bits alone, for the commonest types; what is not finite stays so."""

ENCODERS: Mapping[tuple[str, KernelFormat], Encode] = {
    ("Q4_0", "q8_0"): _one_step(q8_0, 0),
    ("TQ1_0", "q8_0"): _one_step(q8_0, 52),
    ("TQ2_0", "q8_0"): _one_step(q8_0, 64),
    ("TQ1_0", "q4_0"): _one_step(q4_0, 52),
    ("TQ2_0", "q4_0"): _one_step(q4_0, 64),
    ("MXFP4", "q8_0"): _mxfp4,
    ("IQ2_XXS", "q8_0"): _iq2_xxs,
    ("IQ3_XXS", "q8_0"): _iq3_xxs,
    ("IQ3_S", "q6_k"): _iq3_s,
    ("IQ1_S", "q6_k"): _iq1_s,
    ("IQ1_M", "q6_k"): _iq1_m,
}
"""Ways from the values, which change nothing but, at most, a step's last bits; else Q8_0 is made by rounding."""
