"""Root-mean-square normalisation."""

from __future__ import annotations

import torch


class RmsNorm:
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last dimension."""

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        # With the sum in place of the mean, one operation a call fewer: both sides are multiplied by the width.
        width = weight.numel()
        self._weight = weight * width**0.5
        self._eps = eps * width

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The normalised ``x`` as a new tensor."""
        return (x * self._factor(x)).mul_(self._weight)

    def inplace(self, x: torch.Tensor) -> None:
        """Normalise ``x``, which may be a view, where it lies."""
        x.mul_(self._factor(x)).mul_(self._weight)

    def _factor(self, x: torch.Tensor) -> torch.Tensor:
        return (x * x).sum(-1, keepdim=True).add_(self._eps).rsqrt_()
