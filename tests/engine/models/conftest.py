"""How far logits may be from the oracle's."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from engine import cpu

ROUNDING = ("avx512_bf16", "amx")
"""Variants that may round activations to bfloat16 where many rows are multiplied."""


@pytest.fixture
def own_variant() -> None:
    """For tests that take whatever variant this machine runs."""


@pytest.fixture(autouse=True)
def float32_activations(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparisons are sharp where activations are not rounded; with rounding, a router's near ties change experts."""
    if "own_variant" not in request.fixturenames and cpu.active_isa() in ROUNDING:
        monkeypatch.setenv("KT_CPU_ISA", "avx512")


@pytest.fixture
def bound() -> Callable[..., float]:
    """The largest error that rounding explains, in logits.

    A dot product of K terms in float32 (24 bits) errs by about sqrt(K) units of rounding; rounding its inputs to
    bfloat16 (8 bits), as the ``avx512_bf16`` and ``amx`` kernels do for FP8 and bf16 weights, errs by one such unit
    whatever K, and by two where integer weights are rounded as well (many rows); rounding them to 16 bits of the
    largest of a block, as is done for integer weights otherwise, by half of 2^-15 of it.
    A value passes R products in a row (4 a layer, 1 for the head), whose errors add like sqrt(R). The largest of
    some hundred logits is 4 deviations off at most; twice that for what norms and routing add.
    """

    def of(
        logits: torch.Tensor, layers: int = 2, *, bf16_weights: bool, integers: bool = False, width: int = 192
    ) -> float:
        unit = math.sqrt(width) * 2.0**-24
        if integers:
            unit = 2.0**-15
        if bf16_weights and cpu.active_isa() in ROUNDING:
            unit = 2.0**-9
        if integers and cpu.active_isa() in ROUNDING:
            unit = 2.0**-8
        return 8 * math.sqrt(4 * layers + 1) * unit * float(logits.std())

    return of
