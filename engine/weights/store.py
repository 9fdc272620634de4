"""Float weights that become integers at load, and how much of them is lost."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from engine import cpu

if TYPE_CHECKING:
    from engine.weights.loader import Matrix

_FLOATS = ("f32", "bf16", "fp8_block128", "fp8_channel")
_ROWS, _SAMPLES = 16, 8


class Losses:
    """What float formats are stored as, with the error measured on samples."""

    def __init__(self, store: cpu.Store | None) -> None:
        self._store: cpu.Store | None = store
        self._found: dict[str, list[float]] = {}

    def store(self, fmt: cpu.Format) -> cpu.Store | None:
        """What a matrix of this format is stored as; None for as it is."""
        return self._store if fmt in _FLOATS else None

    def sample(self, what: str, store: cpu.Store | None, team: cpu.Team, matrix: Matrix) -> None:
        """Measure the error on the first rows of a matrix, of a few matrices of a kind."""
        errors = self._found.setdefault(what, []) if store else []
        if store is None or len(errors) == _SAMPLES:
            return
        values = torch.from_numpy(matrix.float32(0, min(_ROWS, matrix.rows))[:_ROWS].copy())
        rows, cols = values.shape
        made = cpu.Linear(team, "f32", values, rows=rows, cols=cols, mode="exact", store=store)
        errors.append(cpu.relative_error(made, values))

    @property
    def notices(self) -> list[str]:
        """A sentence for each kind of matrix that was changed."""
        return [
            f"{what} are stored as {self._store}, relative_error "
            f"{math.sqrt(sum(error**2 for error in errors) / len(errors)):.2g} of a sample"
            for what, errors in self._found.items()
            if errors
        ]
