"""Root-mean-square normalisation."""

from __future__ import annotations

import torch


class RmsNorm:
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last dimension."""

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        self.weight = weight
        self.eps = eps

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The normalised ``x`` as a new tensor."""
        return (x * self._factor(x)).mul_(self.weight)

    def inplace(self, x: torch.Tensor) -> None:
        """Normalise ``x``, which may be a view, where it lies."""
        x.mul_(self._factor(x)).mul_(self.weight)

    def _factor(self, x: torch.Tensor) -> torch.Tensor:
        return x.square().mean(-1, keepdim=True).add_(self.eps).rsqrt_()
