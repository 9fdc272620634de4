"""Cases that the kernel tests and tools/kernel_check.py share: run the native module, compare with the oracle.

Each function returns the largest error as a share of the allowed bound, so anything above 1 is a failure.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import kernel_oracle as oracle

TOKENS = (1, 2, 3, 5, 8, 17, 130)
BLOCK_SHAPES = ((1, 32), (16, 64), (17, 96), (130, 160), (200, 288))
PLAIN_SHAPES = (*BLOCK_SHAPES, (3, 1), (40, 6), (33, 131), (131, 257), (256, 640))
SHAPES = {
    32: BLOCK_SHAPES,
    128: ((1, 128), (17, 384), (130, 256)),
    256: ((1, 256), (17, 768), (130, 512)),
}
BLOCK_EXPERT_SHAPES = ((32, 32, 2, 1), (64, 96, 4, 2), (288, 160, 3, 3), (256, 384, 5, 2))
EXPERT_SHAPES = ((6, 3, 2, 1), (64, 48, 4, 2), (130, 100, 3, 3), (257, 131, 2, 1), (256, 384, 5, 2))


def shapes(fmt: str) -> tuple[tuple[int, int], ...]:
    return SHAPES[oracle.WHOLE_BLOCKS[fmt]] if fmt in oracle.WHOLE_BLOCKS else PLAIN_SHAPES


def expert_shapes(fmt: str) -> tuple[tuple[int, int, int, int], ...]:
    """Hidden, intermediate, experts, experts a token."""
    align = oracle.WHOLE_BLOCKS.get(fmt, 1)
    if align > 32:
        return ((align, align, 2, 1), (2 * align, 3 * align, 3, 2))
    return BLOCK_EXPERT_SHAPES if align == 32 else EXPERT_SHAPES


def make_linear(csrc: Any, team: Any, weight: oracle.Weight, mode: str) -> Any:
    return csrc.Linear(team, weight.fmt, weight.data, weight.scale, weight.rows, weight.cols, mode)


def linear_error(
    csrc: Any, team: Any, rng: np.random.Generator, fmt: str, mode: str, rows: int, cols: int
) -> float:
    weight = oracle.random_weight(rng, fmt, rows, cols)
    linear = make_linear(csrc, team, weight, mode)
    worst = 0.0
    for tokens in TOKENS:
        x = (rng.standard_normal((tokens, cols)) * 10.0 ** rng.uniform(-2, 2)).astype(np.float32)
        y = linear.forward(x)
        if not np.array_equal(y, linear.forward(x)):
            return float("inf")  # a repeated call must give the same bits
        error = np.abs(y - x.astype(np.float64) @ weight.value.T)
        worst = max(worst, float((error / oracle.linear_bound(weight, x, team.isa, mode)).max()))
    return worst


def fp8_codes_error(csrc: Any, team: Any, fmt: str) -> float:
    """Every finite FP8 code, read out one at a time through unit vectors: exact, so the bound is zero."""
    codes = np.array([c for c in range(256) if c & 0x7F != 0x7F] + [0, 0], dtype=np.uint8)
    matrix = np.stack([np.roll(codes, shift) for shift in range(16)])  # each code in each row of a tile
    if fmt == "fp8_block128":
        scale = np.array([[0.375, 3.0]], dtype=np.float32)
        factor = np.repeat(scale, 128, axis=1)
    elif fmt == "fp8_channel":
        scale = np.linspace(0.5, 1000, 16, dtype=np.float32).round(0)
        factor = np.repeat(scale[:, None], 256, axis=1)
    else:
        scale = np.arange(67, 67 + 120, dtype=np.uint8)[:128].repeat(2)[:128].reshape(16, 8)
        factor = np.repeat(2.0 ** (scale.astype(np.float64) - 127), 32, axis=1)
    linear = csrc.Linear(team, fmt, matrix.reshape(-1), scale, 16, 256, "exact")
    value = (oracle.fp8_e4m3(matrix) * factor).astype(np.float32)
    y = linear.forward(np.eye(256, dtype=np.float32))  # panel path
    wrong = int((y != value.T).sum())
    for column in range(256):  # row path
        one = np.zeros((1, 256), dtype=np.float32)
        one[0, column] = 1
        wrong += int((linear.forward(one)[0] != value[:, column]).sum())
    return float(wrong and np.inf)


def load_experts(
    csrc: Any,
    team: Any,
    rng: np.random.Generator,
    fmt: str,
    hidden: int,
    intermediate: int,
    count: int,
    mode: str = "exact",
) -> tuple[Any, list[list[oracle.Weight]]]:
    matrices = [
        [oracle.random_weight(rng, fmt, *shape) for _ in range(count)]
        for shape in ((intermediate, hidden), (intermediate, hidden), (hidden, intermediate))
    ]
    layer = csrc.Experts(team, fmt, count, hidden, intermediate, mode)
    for e in range(count):
        g, u, d = (m[e] for m in matrices)
        layer.load(e, g.data, u.data, d.data, g.scale, u.scale, d.scale)
    return layer, matrices


def routing(rng: np.random.Generator, tokens: int, count: int, k: int) -> tuple[Any, Any]:
    """Distinct experts per token, some choices computed elsewhere (negative)."""
    ids = np.stack([rng.permutation(count)[:k] for _ in range(tokens)]).astype(np.int32)
    ids[rng.random(ids.shape) < 0.15] = -1
    return ids, rng.random((tokens, k)).astype(np.float32)


def activations(rng: np.random.Generator, tokens: int, hidden: int) -> Any:
    """Small enough that gates stay in the range where silu is curved."""
    return (rng.standard_normal((tokens, hidden)) * 0.5 / np.sqrt(hidden)).astype(np.float32)


def experts_error(
    csrc: Any,
    team: Any,
    rng: np.random.Generator,
    fmt: str,
    hidden: int,
    intermediate: int,
    count: int,
    k: int,
    mode: str = "exact",
) -> float:
    layer, matrices = load_experts(csrc, team, rng, fmt, hidden, intermediate, count, mode)
    worst = 0.0
    for tokens in TOKENS:
        x = activations(rng, tokens, hidden)
        choices = [routing(rng, tokens, count, k)]
        weights = rng.standard_normal((tokens, k)).astype(np.float32)
        choices.append((np.full((tokens, k), -1, np.int32), weights))  # none here
        choices.append((np.full((tokens, k), count - 1, np.int32), weights))  # all to one
        for ids, factors in choices:
            y = layer.forward(x, ids, factors)
            if not np.array_equal(y, layer.forward(x, ids, factors)):
                return float("inf")
            expected, size, step = oracle.experts_forward(*matrices, x, ids, factors)
            bound = oracle.experts_bound(
                size, step, fmt, team.isa, max(hidden, intermediate), mode, tokens * k
            )
            worst = max(worst, float((np.abs(y - expected) / bound).max()))
    return worst
