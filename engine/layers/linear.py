"""Linear maps and the embedding, on matrices in the format they are stored in."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from engine import cpu
from engine.errors import CheckpointError
from engine.plan import Rows, multiply
from engine.weights.formats import FP8_BLOCK, dequantize
from engine.weights.loader import Loader, Matrix


class Linear:
    """``x @ weight.T`` for one matrix, or for several stacked by rows (their outputs lie side by side).

    Matrices that share a format are joined, so that one pass of the kernel serves all of them; otherwise each has
    its own pass.
    """

    def __init__(
        self,
        loader: Loader,
        team: cpu.Team,
        names: Sequence[str],
        rows: Sequence[int],
        columns: int,
        *,
        precise: bool = False,
    ) -> None:
        """Check the matrices and put off loading them.

        Args:
            loader: The checkpoint.
            team: The threads that compute.
            names: The matrices' tensors.
            rows: Outputs of each.
            columns: Inputs of all.
            precise: Multiply in float32 whatever the format, for a router, whose choices a rounding would change.
        """
        self.columns = columns
        self._precise = precise
        self.rows = sum(rows)
        self._kernels: list[cpu.Linear] = []
        matrices = [loader.matrix(name, count, columns) for name, count in zip(names, rows, strict=True)]
        groups = [matrices] if _joinable(matrices) else [[matrix] for matrix in matrices]
        for group in groups:
            loader.later(group, partial(self._build, team, loader, group))

    def __call__(self, x: Rows, out: Rows | None = None) -> Rows:
        """Map rows of ``columns`` numbers to rows of ``rows`` numbers, new ones or ``out``."""
        return multiply(self._kernels, x, out)

    def add_to(self, y: Rows, x: Rows) -> None:
        """Add the outputs for ``x`` to ``y``."""
        multiply(self._kernels, x, y, add=True)

    def _build(self, team: cpu.Team, loader: Loader, matrices: list[Matrix]) -> None:
        kernel = "f32" if self._precise else matrices[0].kept
        weight, scale = loader.converter.joined(matrices, kernel)
        store = None if self._precise else loader.losses.store(kernel)
        loader.losses.sample("linear maps", store, team, matrices[0])
        self._kernels.append(
            cpu.Linear(
                team,
                kernel,
                weight,
                scale,
                rows=sum(matrix.rows for matrix in matrices),
                cols=self.columns,
                mode=cpu.choose_mode(store or kernel, loader.numerics),
                store=store,
            )
        )
        for matrix in matrices:
            matrix.forget()


def _joinable(matrices: Sequence[Matrix]) -> bool:
    """Whether rows can be stacked: one format in memory, by rows, and no block of scales straddles two matrices."""
    if any(matrix.kept != matrices[0].kept for matrix in matrices):
        return False
    if matrices[0].format.scale == "group_first":
        return len(matrices) == 1
    return matrices[0].format.scale != "block" or all(
        matrix.rows % FP8_BLOCK == 0 for matrix in matrices[:-1]
    )


class Embedding:
    """Token vectors, decoded from the mapped file when they are looked up."""

    def __init__(self, loader: Loader, name: str, vocab: int, hidden: int) -> None:
        self.matrix = loader.matrix(name, vocab, hidden)
        if self.matrix.format.scale:
            raise CheckpointError(
                f"{self.matrix.stored.path}: {name} is stored as {self.matrix.format.name}; "
                "an embedding is expected in BF16 or F32"
            )
        self._rows = self.matrix.stored.raw.reshape(vocab, -1)

    def __call__(self, tokens: NDArray[np.int64]) -> torch.Tensor:
        """float32 ``[tokens, hidden]``."""
        rows = self._rows[tokens]
        return torch.from_numpy(dequantize(self.matrix.format, rows, rows.shape[0], self.matrix.columns))
