"""Root-mean-square normalisation."""

from __future__ import annotations

import torch

from engine import ops
from engine.cpu import Team


class RmsNorm:
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last dimension."""

    def __init__(self, team: Team, weight: torch.Tensor, eps: float) -> None:
        self._team, self._weight, self._eps = team, weight.contiguous(), eps

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The normalised ``x`` ``[rows, width]`` as a new tensor."""
        return ops.rms_norm(self._team, x, self._weight, self._eps)

    def inplace(self, x: torch.Tensor, *, groups: int = 1) -> None:
        """Normalise each group of ``x`` ``[rows, groups * width]``, whose rows may lie apart, where it lies."""
        ops.rms_norm(self._team, x, self._weight, self._eps, out=x, groups=groups)
