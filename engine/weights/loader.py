"""What a model file asks a checkpoint for; everything is checked before any weight is read.

A model's constructor asks for its tensors by name and shape. Small ones (norms, router) are read at once; the heavy
work, handing matrices to the kernels, is put off as jobs, so that a missing or misshapen tensor anywhere in the
model is found first and the jobs can report progress in bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from engine.cpu import Store
from engine.errors import CheckpointError
from engine.progress import Progress, ProgressCallback
from engine.weights.convert import Converter
from engine.weights.formats import (
    BY_GGUF,
    BY_SAFETENSORS,
    FP8,
    FP8_BLOCK,
    FP8_ROWS,
    INT4_G32,
    INT4_G128,
    Floats,
    Format,
    KernelFormat,
    Scales,
    dequantize,
)
from engine.weights.index import Checkpoint
from engine.weights.int4 import COMPRESSED_GROUP, GPTQ_GROUP
from engine.weights.quantization import gptq_zeros, int4_layout
from engine.weights.store import Losses
from engine.weights.tensor import StoredTensor

AHEAD_BYTES = 256 << 20
"""Bytes of files that the system is asked for before they are needed, so that disks have enough to do."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix as stored, checked against what the model expects.

    Attributes:
        stored: Where it lies.
        format: How its numbers lie in bytes.
        rows: Outputs.
        columns: Inputs.
        scale: For FP8 the factors, ``[ceil(rows/128), ceil(columns/128)]`` or, one for each row, ``[rows]``;
            for int4 the bits of bfloat16 ``[rows, columns/32]`` or of float16 ``[columns/128, rows]``.
        scale_stored: Where these lie if they are not read yet, but mapped.
    """

    stored: StoredTensor
    format: Format
    rows: int
    columns: int
    scale: Scales | None
    scale_stored: StoredTensor | None = None

    @property
    def nbytes(self) -> int:
        """Bytes in the checkpoint."""
        return self.stored.raw.size + (self.scale.nbytes if self.scale is not None else 0)

    @property
    def kept(self) -> KernelFormat:
        """The format that it has in memory unless it has to share another one."""
        return self.format.kept

    def float32(self, begin: int = 0, end: int | None = None) -> Floats:
        """Values of some rows; of all, if it has scales apart."""
        if self.scale is not None:
            return dequantize(self.format, self.stored.raw, self.rows, self.columns, self.scale)
        last = self.rows if end is None else end
        raw = self.stored.raw.reshape(self.rows, -1)[begin:last]
        return dequantize(self.format, raw, last - begin, self.columns)

    def forget(self) -> None:
        """Let go of the mapped memory that it took, once it is packed."""
        self.stored.forget()
        if self.scale_stored is not None:
            self.scale_stored.forget()


def _mapped_bits(stored: StoredTensor) -> NDArray[np.uint16]:
    """A view of 2-byte numbers, copied only where the file's header is of an odd length.

    Scales of small groups are a ninth of the weights: they are read when their matrix is packed, not before.
    """
    return np.require(stored.raw.view(np.uint16).reshape(stored.shape), requirements="A")


@dataclass(frozen=True, slots=True)
class _Job:
    matrices: Sequence[Matrix]
    run: Callable[[], None]

    @property
    def label(self) -> str:
        return self.matrices[0].stored.name

    @property
    def nbytes(self) -> int:
        return sum(matrix.nbytes for matrix in self.matrices)


def _ask_for(job: _Job) -> int:
    """Have the job's bytes read from the file in the meantime; returns how many."""
    for matrix in job.matrices:
        matrix.stored.fetch()
    return job.nbytes


class Loader:
    """Hands a checkpoint's tensors to a model under construction."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        device: torch.device,
        numerics: Literal["auto", "exact", "fast"] = "auto",
        store: Store | None = None,
    ) -> None:
        self.checkpoint = checkpoint
        self.numerics = numerics
        self.losses = Losses(store)
        """What becomes of float formats."""
        self.device = device
        self._formats = BY_GGUF if checkpoint.path.is_file() else BY_SAFETENSORS
        self._int4 = int4_layout(checkpoint.config)
        self.converter = Converter()
        """Makes kernel sources of matrices; jobs call it."""
        self._jobs: list[_Job] = []
        self._asked: dict[str, int] = {}

    @property
    def weight_bytes(self) -> int:
        """Bytes of all tensors asked for so far, each counted once."""
        return sum(self._asked.values())

    def matrix(self, name: str, rows: int, columns: int) -> Matrix:
        """Check a matrix; nothing is read but FP8 scales and GPTQ's zero points and order of columns.

        Raises:
            CheckpointError: It is missing, has another shape, or is stored in a way that is not supported.
        """
        layout, stem = self._int4, name.removesuffix("weight")
        if layout == "pack-quantized" and stem + "weight_packed" in self.checkpoint.tensors:
            return self._compressed(stem, rows, columns)
        if layout == "gptq" and stem + "qweight" in self.checkpoint.tensors:
            return self._gptq(stem, rows, columns)
        stored = self._find(name, (rows, columns))
        found = self._format(stored)
        if columns % found.block:
            raise CheckpointError(
                f"{stored.path}: {name} has rows of {columns} numbers, which is no multiple of the "
                f"{found.block} that {found.name} stores together; the file is damaged"
            )
        scale: Scales | None = None
        if found is FP8:
            by_row = self.checkpoint.tensors.get(stem + "weight_scale")
            if by_row is not None:
                found = FP8_ROWS
                shape = (rows, 1) if len(by_row.shape) == 2 else (rows,)
                scale = self._floats(stem + "weight_scale", shape).reshape(rows)
            else:
                blocks = (-(-rows // FP8_BLOCK), -(-columns // FP8_BLOCK))
                scale = self._floats(stem + "weight_scale_inv", blocks)
        return Matrix(stored, found, rows, columns, scale)

    def vector(self, name: str, size: int) -> torch.Tensor:
        """Read a vector as float32."""
        return torch.from_numpy(self._floats(name, (size,))).to(self.device)

    def later(self, matrices: Sequence[Matrix], run: Callable[[], None]) -> None:
        """Put off heavy work with matrices until the whole model has been checked."""
        self._jobs.append(_Job(matrices, run))

    def run(self, progress: ProgressCallback) -> None:
        """Do what was put off, reporting bytes, then how fast it went and what was converted."""
        total = sum(job.nbytes for job in self._jobs)
        done = asked = 0
        ahead = iter(self._jobs)
        began = time.monotonic()
        try:
            for job in self._jobs:
                while asked < min(done + job.nbytes + AHEAD_BYTES, total):
                    asked += _ask_for(next(ahead))
                progress(Progress("weights", done, total, job.label))
                try:
                    job.run()
                except ValueError as error:
                    raise CheckpointError(
                        f"{self.checkpoint.path}: {job.label} cannot be used ({error}): download the model again"
                    ) from None
                done += job.nbytes
        finally:
            self._jobs.clear()
            self.converter.close()
        for notice in (*self.converter.notices, *self.losses.notices):
            progress(Progress("weights", done, total, notice))
        seconds = max(time.monotonic() - began, 1e-9)
        speed = f"{done / 1e9:.2f} GB in {seconds:.1f} s, {done / 1e9 / seconds:.2f} GB/s"
        progress(Progress("weights", done, total, speed))

    def _compressed(self, stem: str, rows: int, columns: int) -> Matrix:
        """A matrix of compressed-tensors' packed integers: words, scales and the shape that they stand for."""
        name = stem + "weight_packed"
        self._check_groups(name, columns, COMPRESSED_GROUP)
        stored = self._typed(name, (rows, columns // 8), "I32")
        scale = self._typed(stem + "weight_scale", (rows, columns // COMPRESSED_GROUP), "BF16")
        shape = self._typed(stem + "weight_shape", (2,), "I32", "I64")
        numbers = shape.raw.copy().view(np.int32 if shape.dtype == "I32" else np.int64).tolist()
        if numbers != [rows, columns]:
            raise CheckpointError(
                f"{shape.path}: {shape.name} says {numbers}, but the configuration calls for {[rows, columns]}: "
                "configuration and weights are not of the same model"
            )
        del self._asked[shape.name]  # it is not kept
        return Matrix(stored, INT4_G32, rows, columns, _mapped_bits(scale), scale)

    def _gptq(self, stem: str, rows: int, columns: int) -> Matrix:
        """A matrix of GPTQ's integers, whose zero points and order of columns must be the plain ones."""
        name = stem + "qweight"
        self._check_groups(name, columns, GPTQ_GROUP)
        groups = columns // GPTQ_GROUP
        stored = self._typed(name, (columns // 8, rows), "I32")
        scale = self._typed(stem + "scales", (groups, rows), "F16")
        zeros = self._typed(stem + "qzeros", (groups, -(-rows // 8)), "I32")
        words = zeros.raw.copy().view(np.uint32).reshape(zeros.shape)
        nibbles = ((words[:, :, None] >> (np.arange(8, dtype=np.uint32) * 4)) & 15).reshape(groups, -1)[
            :, :rows
        ]
        if not any((nibbles == zero).all() for zero in gptq_zeros(self.checkpoint.config)):
            raise CheckpointError(
                f"{zeros.path}: {zeros.name} holds zero points other than 8, which symmetric weights have and this "
                "engine runs; take a model quantised with sym true"
            )
        del self._asked[zeros.name]  # it is not kept
        if stem + "g_idx" in self.checkpoint.tensors:
            order = self._typed(stem + "g_idx", (columns,), "I32")
            if (order.raw.copy().view(np.int32) != np.arange(columns) // GPTQ_GROUP).any():
                raise CheckpointError(
                    f"{order.path}: {order.name} groups columns out of their order, which this engine does not run; "
                    "take a model quantised with desc_act false"
                )
            del self._asked[order.name]
        return Matrix(stored, INT4_G128, rows, columns, _mapped_bits(scale), scale)

    def _check_groups(self, name: str, columns: int, group: int) -> None:
        if columns % group:
            raise CheckpointError(
                f"{self.checkpoint.tensors[name].path}: {name} has rows of {columns} numbers, which is no multiple "
                f"of the {group} that share a scale; this engine runs whole groups only: take the model in FP8 or BF16"
            )

    def _typed(self, name: str, shape: tuple[int, ...], *dtypes: str) -> StoredTensor:
        stored = self._find(name, shape)
        if stored.dtype not in dtypes:
            raise CheckpointError(
                f"{stored.path}: {name} is stored as {stored.dtype}; {' or '.join(dtypes)} is expected"
            )
        return stored

    def _find(self, name: str, shape: tuple[int, ...]) -> StoredTensor:
        stored = self.checkpoint.tensors.get(name)
        if stored is None:
            raise CheckpointError(
                f"{self.checkpoint.path} lacks the tensor {name}, which its configuration calls for: "
                "download the model again"
            )
        if stored.shape != shape:
            raise CheckpointError(
                f"{stored.path}: {name} has the shape {list(stored.shape)}, but the configuration calls for "
                f"{list(shape)}: configuration and weights are not of the same model"
            )
        self._asked[name] = stored.raw.size
        return stored

    def _format(self, stored: StoredTensor) -> Format:
        found = self._formats.get(stored.dtype)
        if found is None:
            names = ", ".join(name for name in self._formats if name)
            raise CheckpointError(
                f"{stored.path}: {stored.name} is stored as {stored.dtype}, which this engine does not run; "
                f"take the model in one of {names}"
            )
        return found

    def _floats(self, name: str, shape: tuple[int, ...]) -> Floats:
        """A small tensor's float32 values."""
        stored = self._find(name, shape)
        found = self._format(stored)
        if found.block != 1 or found.scale:
            raise CheckpointError(
                f"{stored.path}: {name} is stored as {stored.dtype}; a plain float type is expected"
            )
        rows, columns = (1, shape[0]) if len(shape) == 1 else shape
        return dequantize(found, stored.raw, rows, columns).reshape(shape)
