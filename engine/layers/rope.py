"""Rotary position embedding (https://arxiv.org/abs/2104.09864)."""

from __future__ import annotations

import torch

from engine import _csrc, ops
from engine.batch import Batch


class Rope:
    """The rotations of the first ``dim`` values of each head.

    A rotated pair is either ``(i, i + dim/2)``, as the Hugging Face hub stores projections, or ``(2i, 2i + 1)``
    (interleaved), as llama.cpp does for llama. Attention applies them (`engine.ops.attend`).
    """

    def __init__(self, dim: int, theta: float, *, interleaved: bool, device: torch.device) -> None:
        self.dim = dim
        self.interleaved = interleaved
        exponent = torch.arange(0, dim, 2, dtype=torch.float32, device=device) / dim
        self.frequencies = 1.0 / (theta**exponent)

    def angles(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine ``[rows, dim / 2]`` for positions ``[rows]``."""
        angle = positions.float().unsqueeze(-1) * self.frequencies
        return angle.cos(), angle.sin()

    def step(self, batch: Batch) -> _csrc.Step:
        """What all attention calls of a step share."""
        return ops.make_step(batch, *self.angles(batch.positions), interleaved=self.interleaved)
