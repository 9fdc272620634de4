"""What a model file asks a checkpoint for; everything is checked before any weight is read.

A model's constructor asks for its tensors by name and shape. Small ones (norms, router) are read at once; the heavy
work, handing matrices to the kernels, is put off as jobs, so that a missing or misshapen tensor anywhere in the
model is found first and the jobs can report progress in bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from engine.errors import CheckpointError
from engine.progress import Progress, ProgressCallback
from engine.weights.formats import (
    BY_GGUF,
    BY_SAFETENSORS,
    FP8,
    FP8_BLOCK,
    FP8_ROWS,
    Floats,
    Format,
    dequantize,
)
from engine.weights.index import Checkpoint
from engine.weights.tensor import StoredTensor


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix as stored, checked against what the model expects.

    Attributes:
        stored: Where it lies.
        format: How its numbers lie in bytes.
        rows: Outputs.
        columns: Inputs.
        scale: For FP8 the factors, ``[ceil(rows/128), ceil(columns/128)]`` or, one for each row, ``[rows]``.
    """

    stored: StoredTensor
    format: Format
    rows: int
    columns: int
    scale: Floats | None

    @property
    def nbytes(self) -> int:
        """Bytes in the checkpoint."""
        return self.stored.raw.size + (self.scale.nbytes if self.scale is not None else 0)

    def float32(self) -> Floats:
        """All values."""
        return dequantize(self.format, self.stored.raw, self.rows, self.columns, self.scale)


@dataclass(frozen=True, slots=True)
class _Job:
    label: str
    nbytes: int
    run: Callable[[], None]


class Loader:
    """Hands a checkpoint's tensors to a model under construction."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        device: torch.device,
        numerics: Literal["auto", "exact", "fast"] = "auto",
    ) -> None:
        self.checkpoint = checkpoint
        self.numerics = numerics
        self.device = device
        self._formats = BY_GGUF if checkpoint.path.is_file() else BY_SAFETENSORS
        self._jobs: list[_Job] = []
        self._asked: dict[str, int] = {}

    @property
    def weight_bytes(self) -> int:
        """Bytes of all tensors asked for so far, each counted once."""
        return sum(self._asked.values())

    def matrix(self, name: str, rows: int, columns: int) -> Matrix:
        """Check a matrix; nothing is read but its scales.

        Raises:
            CheckpointError: It is missing, has another shape, or is stored in a way that is not supported.
        """
        stored = self._find(name, (rows, columns))
        found = self._format(stored)
        if columns % found.block:
            raise CheckpointError(
                f"{stored.path}: {name} has rows of {columns} numbers, which is no multiple of the "
                f"{found.block} that {found.name} stores together; the file is damaged"
            )
        scale = None
        if found is FP8:
            stem = name.removesuffix("weight")
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

    def later(self, label: str, nbytes: int, run: Callable[[], None]) -> None:
        """Put off heavy work until the whole model has been checked."""
        self._jobs.append(_Job(label, nbytes, run))

    def run(self, progress: ProgressCallback) -> None:
        """Do what was put off, reporting bytes."""
        total = sum(job.nbytes for job in self._jobs)
        done = 0
        for job in self._jobs:
            progress(Progress("weights", done, total, job.label))
            try:
                job.run()
            except ValueError as error:
                raise CheckpointError(
                    f"{self.checkpoint.path}: {job.label} cannot be used ({error}): download the model again"
                ) from None
            done += job.nbytes
        self._jobs.clear()
        progress(Progress("weights", done, total, "done"))

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
