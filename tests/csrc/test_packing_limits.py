"""Weights and scales at the ends of what formats and kernels can hold: computed correctly, or refused by place."""

from __future__ import annotations

import kernel_oracle as oracle
import numpy as np
import pytest
import torch

from engine.cpu import ExpertLayer, Linear, Team, available_isas


@pytest.fixture
def rng():
    seed = np.random.SeedSequence().entropy
    print(f"seed {seed}")
    return np.random.default_rng(seed)


def blocks_of(rng: np.random.Generator, rows: int, blocks: int, low: float, high: float) -> np.ndarray:
    """Rows of blocks of 32 whose largest magnitudes are spread between two powers of ten."""
    values = rng.uniform(-1, 1, (rows, blocks, 32)) * 10.0 ** rng.uniform(low, high, (rows, blocks, 1))
    return values.reshape(rows, blocks * 32).astype(np.float32)


def stored(values: np.ndarray, store: str, isa: str) -> np.ndarray:
    """The weights that a matrix holds, read out with unit vectors."""
    rows, cols = values.shape
    linear = Linear(Team(1, isa=isa), "f32", values.view(np.uint8), rows=rows, cols=cols, store=store)
    # One at a time: many rows at once may be multiplied in bfloat16.
    return torch.cat([linear(row[None]) for row in torch.eye(cols)]).T.double().numpy()


@pytest.mark.parametrize("isa", available_isas())
def test_small_and_large_blocks_of_bytes_are_half_a_step_off(rng, isa):
    values = blocks_of(rng, 40, 6, -9, 6.9)
    values[0, :32] = 65504.0 * 127  # the very largest
    miss = np.abs(stored(values, "int8_g32", isa) - values.astype(np.float64))
    peaks = np.abs(values.astype(np.float64)).reshape(40, 6, 32).max(axis=2)
    # float16 keeps 11 bits of a scale, and nothing below 2^-24; the scale is rounded up.
    step = np.maximum(peaks / 127 * (1 + 2.0**-10), 0) + 2.0**-24
    assert (miss.reshape(40, 6, 32) <= 0.5001 * step[..., None]).all()


def test_a_block_too_large_for_its_scale_is_refused_with_its_place(rng):
    values = blocks_of(rng, 20, 3, -3, 3)
    row, column = int(rng.integers(20)), int(rng.integers(96))
    values[row, column] = -1e9
    with pytest.raises(ValueError, match=rf"row {row}, column {column} is -1e\+09.*at most 8.3e6.*as int8"):
        stored(values, "int8_g32", available_isas()[-1])
    layer = ExpertLayer(Team(2), "f32", 3, 96, 20, store="int8_g32")
    good, down = blocks_of(rng, 20, 3, -3, 3).view(np.uint8), np.zeros((96, 20), np.float32).view(np.uint8)
    with pytest.raises(ValueError, match=rf"expert 1, up: f32 weight at row {row}, column {column}"):
        layer.load(1, good, values.view(np.uint8), down)
    layer.load(1, good, good, down)  # another try is fine
    assert stored(values, "int8", available_isas()[-1])[row, column] == pytest.approx(-1e9, rel=1e-6)


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("store", ["int8", "int4", "int4_g32"])
@pytest.mark.parametrize(("low", "high"), [(-45, -30), (-39, -36), (30, 36), (-45, 36)])
def test_rows_of_any_size_are_stored(rng, isa, store, low, high):
    size = 10.0 ** rng.uniform(low, high, (50, 1))
    values = (rng.standard_normal((50, 64)) * size).astype(np.float32)
    values[7] = 0
    wide = values.astype(np.float64)
    got = stored(values, store, isa)
    assert np.isfinite(got).all()
    assert (got[7] == 0).all()
    # Steps below 2^-120 (8e-37) do not exist.
    peak = np.abs(wide).max(axis=1, keepdims=True)
    if store == "int8":
        assert (np.abs(got - wide) <= 0.501 * np.maximum(peak / 127, 2.0**-120)).all()
    else:
        step = np.maximum(peak / 7, 1e-300)
        plain = wide - step * np.clip(np.round(wide / step), -8, 7)
        lost, allowed = ((got - wide) ** 2).sum(axis=1), (plain**2).sum(axis=1)
        assert (lost <= 1.1 * allowed + 64 * (16 * 2.0**-120) ** 2).all()


@pytest.mark.parametrize("store", ["int8", "int8_g32", "int4", "int4_g32"])
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_numbers_that_are_not_finite_are_refused_with_their_place(rng, store, bad):
    values = rng.standard_normal((33, 70)).astype(np.float32)
    row, column = int(rng.integers(33)), int(rng.integers(70))
    values[row, column] = bad
    with pytest.raises(ValueError, match=f"f32 weight at row {row}, column {column} is not a finite number"):
        stored(values, store, available_isas()[-1])


def fp8_parts(rng: np.random.Generator, fmt: str, rows: int, cols: int) -> tuple[np.ndarray, np.ndarray]:
    codes = oracle.finite_codes(rng, rows, cols)
    shape = (rows,) if fmt == "fp8_channel" else (-(-rows // 128), -(-cols // 128))
    return codes, np.exp2(rng.uniform(-126, 60, shape)).astype(np.float32)


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("fmt", ["fp8_block128", "fp8_channel"])
@pytest.mark.parametrize("tokens", [1, 40])
def test_fp8_scales_up_to_the_limit_are_exact_enough(rng, isa, fmt, tokens):
    rows, cols = 200, 260
    codes, scale = fp8_parts(rng, fmt, rows, cols)
    scale.reshape(-1)[0] = -(2.0**60)
    wide = scale.astype(np.float64)
    factor = wide[:, None] if wide.ndim == 1 else np.repeat(np.repeat(wide, 128, 0), 128, 1)[:rows, :cols]
    weight = oracle.Weight(fmt, codes.reshape(-1), scale, oracle.fp8_e4m3(codes) * factor)
    linear = Linear(Team(2, isa=isa), fmt, weight.data, scale, rows=rows, cols=cols)
    x = rng.standard_normal((tokens, cols)).astype(np.float32)
    y = linear(torch.from_numpy(x)).numpy()
    # Panels hold weights times 2^-60, so that parts of a weight below 2^-89 are lost.
    bound = oracle.linear_bound(weight, x, isa, "exact") + cols * 4 * 2.0**-89
    assert (np.abs(y - x.astype(np.float64) @ weight.value.T) <= bound).all()


@pytest.mark.parametrize(
    ("fmt", "place"), [("fp8_block128", "block row 1, block column 2"), ("fp8_channel", "row 5")]
)
@pytest.mark.parametrize("bad", [2.0**61, -(2.0**68), 3e38])
def test_fp8_scales_beyond_the_limit_are_refused_with_their_place(rng, fmt, place, bad):
    codes, scale = fp8_parts(rng, fmt, 200, 260)
    scale.reshape(-1)[5] = bad
    with pytest.raises(ValueError, match=rf"{place} is .*, more than kernels can multiply"):
        Linear(Team(2), fmt, codes.reshape(-1), scale, rows=200, cols=260)
