"""Root-mean-square normalisation."""

from __future__ import annotations

import torch

from engine.plan import Rows, rms_norm


class RmsNorm:
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last dimension."""

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        self._weight, self._eps = weight.contiguous(), eps

    def __call__(self, x: Rows) -> Rows:
        """The normalised ``x`` as new rows."""
        return rms_norm(x, self._weight, self._eps)

    def inplace(self, x: Rows) -> None:
        """Normalise ``x`` where it lies; each group by itself if ``x`` is several times as wide as the weight."""
        rms_norm(x, self._weight, self._eps, out=x)
