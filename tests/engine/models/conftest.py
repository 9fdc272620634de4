"""How far logits may be from the oracle's."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from engine import cpu


@pytest.fixture
def bound() -> Callable[..., float]:
    """The largest error that rounding explains, in logits.

    A dot product of K terms in float32 (24 bits) errs by about sqrt(K) units of rounding; rounding its inputs to
    bfloat16 (8 bits), as the ``avx512_bf16`` kernels do for FP8 and bf16 weights, errs by one such unit whatever K;
    rounding them to 16 bits of the largest of a block, as is done for integer weights, by half of 2^-15 of it.
    A value passes R products in a row (4 a layer, 1 for the head), whose errors add like sqrt(R). The largest of
    some hundred logits is 4 deviations off at most; twice that for what norms and routing add.
    """

    def of(
        logits: torch.Tensor, layers: int = 2, *, bf16_weights: bool, integers: bool = False, width: int = 192
    ) -> float:
        unit = math.sqrt(width) * 2.0**-24
        if integers:
            unit = 2.0**-15
        if bf16_weights and cpu.active_isa() in ("avx512_bf16", "amx"):
            unit = 2.0**-9
        return 8 * math.sqrt(4 * layers + 1) * unit * float(logits.std())

    return of
