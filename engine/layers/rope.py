"""Rotary position embedding (https://arxiv.org/abs/2104.09864)."""

from __future__ import annotations

import torch


class Rope:
    """The rotations of the first ``dim`` values of each head.

    A rotated pair is either ``(i, i + dim/2)``, as the Hugging Face hub stores projections, or ``(2i, 2i + 1)``
    (interleaved), as llama.cpp does for llama. Attention applies them (`engine.plan.attend`).
    """

    def __init__(self, dim: int, theta: float, *, interleaved: bool) -> None:
        self.interleaved = interleaved
        exponent = torch.arange(0, dim, 2, dtype=torch.float32) / dim
        self.frequencies = (1.0 / (theta**exponent)).numpy()
        """float32 ``[dim / 2]``: radians a position."""
