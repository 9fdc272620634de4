"""Matrices on their way from the file to the kernels: as they are, or in another format.

Conversions go through slices of rows, some at a time, so that besides the result only a few megabytes are taken. What
they cost in exactness is measured on a slice of each matrix and told in `Converter.notices`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from engine.weights.blocks import DIRECT, ENCODERS, TARGETS, q8_0_nearest
from engine.weights.formats import BY_GGUF, MXFP4, Bytes, Floats, Format, KernelFormat, Scales, dequantize

if TYPE_CHECKING:
    from engine.weights.loader import Matrix

Packable = tuple[Bytes, Scales | NDArray[np.uint8] | None]
"""A matrix as `engine.cpu` takes it: bytes and, apart from them, scales."""

SLICE_NUMBERS = 1 << 18
"""Numbers that are converted at once; all that a conversion needs for them fits into the second-level cache."""
COPY_BYTES = 8 << 20

_SAME = {"q4_0", "q8_0"}, {"q4_k", "q5_k"}, {"f32", "bf16"}
_COMMON: tuple[KernelFormat, ...] = ("q8_0", "q5_k", "f32")


def common_format(formats: Collection[Format], columns: int) -> KernelFormat | None:
    """The format in which matrices that one kernel call multiplies can be kept together.

    Exact where one of them can hold all the others' numbers, else 8-bit integers.

    Args:
        formats: What the file has.
        columns: Of each matrix.

    Returns:
        None if they have nothing in common: formats with scales apart are only ever kept as they are.
    """
    kept = {row.kept for row in formats}
    if len(kept) == 1:
        return kept.pop()
    if any(row.scale for row in formats):
        return None
    for same, common in zip(_SAME, _COMMON, strict=True):
        if kept <= same:
            return common
    return "f32" if columns % TARGETS["q8_0"].block else "q8_0"


@dataclass(slots=True)
class _Tally:
    """What was converted from one format to another."""

    tensors: set[str] = field(default_factory=set)
    miss: float = 0.0
    size: float = 0.0
    lock: Lock = field(default_factory=Lock)

    def add(self, wanted: NDArray[np.floating[Any]], found: Floats) -> None:
        miss, size = (
            float(np.square(x, dtype=np.float64).sum()) for x in (found.astype(np.float64) - wanted, wanted)
        )
        with self.lock:
            self.miss, self.size = self.miss + miss, self.size + size

    @property
    def error(self) -> float:
        """Root-mean-square error over the root-mean-square of the values."""
        return math.sqrt(self.miss / self.size) if self.size else 0.0


class Converter:
    """Makes kernel sources of matrices, in several threads."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._tallies: dict[tuple[str, KernelFormat], _Tally] = {}

    def close(self) -> None:
        """End the threads."""
        if self._pool:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    @property
    def notices(self) -> list[str]:
        """A sentence for each pair of formats between which tensors were converted."""
        return [
            f"{len(tally.tensors)} {'tensor' if len(tally.tensors) == 1 else 'tensors'} of type {name} "
            f"{'is' if len(tally.tensors) == 1 else 'are'} kept as {TARGETS[to].said}, "
            + (f"error {tally.error * 100:.2g} %" if tally.miss else "exactly")
            for (name, to), tally in sorted(self._tallies.items())
        ]

    def packable(self, matrices: Sequence[Matrix], to: Sequence[KernelFormat]) -> list[Packable]:
        """Each matrix as `engine.cpu` takes it, in its format of ``to``.

        Raises:
            ValueError: A number is not finite; the message names matrix and row.
        """
        work: list[Callable[[], None]] = []
        found = [self._start(matrix, kept, None, work) for matrix, kept in zip(matrices, to, strict=True)]
        self._run(work)
        return found

    def joined(self, matrices: Sequence[Matrix], to: KernelFormat) -> Packable:
        """The matrices below each other, in the format ``to``; they have one length of rows.

        Raises:
            ValueError: As `packable`.
        """
        if len(matrices) == 1:
            return self.packable(matrices, [to])[0]
        if to == "mxfp4":
            parts = self.packable(matrices, [to] * len(matrices))
        else:
            sizes = [_row_bytes(matrix, to) * matrix.rows for matrix in matrices]
            whole = np.empty(sum(sizes), np.uint8)
            work: list[Callable[[], None]] = []
            ends = np.cumsum(sizes)
            parts = [
                self._start(matrix, to, whole[end - size : end], work)
                for matrix, size, end in zip(matrices, sizes, ends, strict=True)
            ]
            self._run(work)
            if parts[0][1] is None:
                return whole, None
            return whole, np.concatenate([scale for _, scale in parts if scale is not None])
        return np.concatenate([part for part, _ in parts]), np.concatenate(
            [s for _, s in parts if s is not None]
        )

    def _start(
        self, matrix: Matrix, to: KernelFormat, out: Bytes | None, work: list[Callable[[], None]]
    ) -> Packable:
        """Add to the work what fills the matrix's bytes, in ``out`` if given."""
        if matrix.format.kernel == to:
            if out is None:
                return matrix.stored.raw, matrix.scale
            for begin in range(0, out.size, COPY_BYTES):
                end = begin + COPY_BYTES
                work.append(_copy(out[begin:end], matrix.stored.raw[begin:end]))
            return out, matrix.scale
        if to == "mxfp4":
            scale = np.empty((matrix.rows, matrix.columns // MXFP4.block), np.uint8)
            codes = np.empty((matrix.rows, matrix.columns // 2), np.uint8)
            work.extend(_each_slice(matrix, lambda a, b: _split_mxfp4(matrix, a, b, codes, scale)))
            return codes.reshape(-1), scale
        if out is None:
            out = np.empty(_row_bytes(matrix, to) * matrix.rows, np.uint8)
        rows = out.reshape(matrix.rows, -1)
        sample: _Tally | None = None
        if matrix.format.kernel is None or to != "f32":  # else a router, which is multiplied in float32
            sample = self._tallies.setdefault((matrix.format.name, to), _Tally())
            sample.tensors.add(matrix.stored.name.partition("[")[0])
        work.extend(
            _each_slice(
                matrix, lambda a, b: _convert(matrix, a, b, to, rows[a:b], sample if a == 0 else None)
            )
        )
        return out, None

    def _run(self, work: list[Callable[[], None]]) -> None:
        if len(work) <= 1:
            for do in work:
                do()
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)), "convert")
        waiting: list[Future[None]] = [self._pool.submit(do) for do in work]
        try:
            for future in waiting:
                future.result()
        finally:
            for future in waiting:
                future.cancel()


def _copy(to: Bytes, source: Bytes) -> Callable[[], None]:
    return lambda: np.copyto(to, source)


def _row_bytes(matrix: Matrix, to: KernelFormat) -> int:
    if matrix.format.kernel == to:
        return matrix.stored.raw.size // matrix.rows
    target = TARGETS[to]
    return matrix.columns // target.block * target.block_bytes


def _each_slice(matrix: Matrix, do: Callable[[int, int], None]) -> list[Callable[[], None]]:
    step = max(1, SLICE_NUMBERS // matrix.columns) if matrix.scale is None else matrix.rows

    def bind(begin: int) -> Callable[[], None]:
        return lambda: do(begin, min(begin + step, matrix.rows))

    return [bind(begin) for begin in range(0, matrix.rows, step)]


def _convert(  # noqa: PLR0917 (a slice of rows, where it goes and who counts)
    matrix: Matrix, begin: int, end: int, to: KernelFormat, out: Bytes, sample: _Tally | None
) -> None:
    """Convert rows and, for a sample, look at what became of them."""
    stored, columns = matrix.format, matrix.columns
    raw = matrix.stored.raw.reshape(matrix.rows, -1)[begin:end]
    block = max(stored.block, TARGETS[to].block)
    blocks = raw.reshape(-1, stored.block_bytes * (block // stored.block)) if matrix.scale is None else raw
    direct = DIRECT.get((stored.name, to))
    values: Floats | None = None
    if direct:
        out[:] = direct(blocks).reshape(end - begin, -1)
    if direct is None or sample:
        with np.errstate(all="ignore"):  # a damaged scale is told below
            values = matrix.float32(begin, end)
            if to == "f32":
                out[:] = values.view(np.uint8)
            elif direct is None:
                encode = ENCODERS.get((stored.name, to), q8_0_nearest)
                out[:] = encode(blocks, values.reshape(-1, block)).reshape(end - begin, -1)
            faulty = ~np.isfinite(values).all(axis=1)
        if faulty.any():
            raise ValueError(
                f"{matrix.stored.name} of type {stored.name} holds a number that is not finite in row "
                f"{begin + int(faulty.argmax())}"
            )
    if sample and values is not None:
        wanted: NDArray[np.floating[Any]] = values
        if stored.name == "F64":
            wanted = np.ascontiguousarray(raw).view(np.float64).reshape(end - begin, columns)
        sample.add(wanted, dequantize(BY_GGUF[to.upper()], out, end - begin, columns))


def _split_mxfp4(matrix: Matrix, begin: int, end: int, out: Bytes, scale: Bytes) -> None:
    """Scales go apart, and codes change from pairs (i, i + 16) in a byte to neighbours (2i, 2i + 1).

    Exact: the factor is 2^(e - 127) for both, ggml doubles the codes and halves it.
    """
    blocks = matrix.stored.raw.reshape(matrix.rows, -1, MXFP4.block_bytes)[begin:end]
    scale[begin:end] = blocks[..., 0]
    codes = np.concatenate([blocks[..., 1:] & 15, blocks[..., 1:] >> 4], axis=-1)
    out[begin:end] = (codes[..., ::2] | codes[..., 1::2] << 4).reshape(end - begin, -1)
