"""Rotary position embedding (https://arxiv.org/abs/2104.09864)."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Angles:
    """The rotations of one step's positions, made once and used by every layer.

    Attributes:
        cosine: Half-split: ``[rows, 1, dim]``. Interleaved: the complex rotation ``[rows, 1, dim / 2]``.
        sine: Half-split: ``[rows, 1, dim]``, negative in the first half. Interleaved: None.
    """

    cosine: torch.Tensor
    sine: torch.Tensor | None


class Rope:
    """Rotates the first ``dim`` values of each head.

    A rotated pair is either ``(i, i + dim/2)``, as the Hugging Face hub stores projections, or ``(2i, 2i + 1)``
    (interleaved), as llama.cpp does for llama.
    """

    def __init__(self, dim: int, theta: float, *, interleaved: bool, device: torch.device) -> None:
        self.dim = dim
        self.interleaved = interleaved
        exponent = torch.arange(0, dim, 2, dtype=torch.float32, device=device) / dim
        self.frequencies = 1.0 / (theta**exponent)

    def angles(self, positions: torch.Tensor) -> Angles:
        """The rotations for positions ``[rows]``."""
        angle = (positions.float().unsqueeze(-1) * self.frequencies).unsqueeze(1)
        if self.interleaved:
            return Angles(torch.polar(torch.ones_like(angle), angle), None)
        cosine, sine = angle.cos(), angle.sin()
        return Angles(torch.cat([cosine, cosine], -1), torch.cat([-sine, sine], -1))

    def rotate(self, heads: torch.Tensor, angles: Angles) -> None:
        """Rotate ``[rows, heads, head_dim]`` where it lies."""
        part = heads[..., : self.dim]
        if angles.sine is None:
            torch.view_as_complex(part.view(*part.shape[:-1], -1, 2)).mul_(angles.cosine)
        else:
            swapped = part.roll(self.dim // 2, -1)
            part.mul_(angles.cosine).addcmul_(swapped, angles.sine)
