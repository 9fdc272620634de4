"""Integer formats made at load, against numpy."""

from __future__ import annotations

import kernel_oracle as oracle
import numpy as np
import pytest
import torch

from engine import cpu
from engine.cpu import ExpertLayer, Linear, Team, available_isas


@pytest.fixture
def rng():
    seed = np.random.SeedSequence().entropy
    print(f"seed {seed}")
    return np.random.default_rng(seed)


def steps(values: np.ndarray, store: str) -> np.ndarray:
    """The distance of neighbouring integers, per weight, if the largest magnitude is just representable."""
    levels = 127 if store.startswith("int8") else 7
    if store.endswith("g32"):
        rows, cols = values.shape
        padded = np.zeros((rows, -(-cols // 32) * 32))
        padded[:, :cols] = np.abs(values)
        peaks = padded.reshape(rows, -1, 32).max(axis=2)
        return np.repeat(peaks, 32, axis=1)[:, :cols] / levels
    return np.abs(values).max(axis=1, keepdims=True) / levels + np.zeros_like(values)


def values_of(linear: Linear) -> torch.Tensor:
    """The weights, read out by unit vectors; few at a time, because many rows may go through bfloat16."""
    return torch.cat([linear(rows) for rows in torch.eye(linear.cols).split(4)]).T


SOURCES = ("f32", "bf16", "fp8_block128", "fp8_channel")


@pytest.mark.parametrize("fmt", SOURCES)
@pytest.mark.parametrize("store", ["int8", "int8_g32", "int4", "int4_g32"])
@pytest.mark.parametrize(("rows", "cols"), [(1, 32), (17, 70), (130, 161)])
def test_stored_weights_are_the_nearest_integers(rng, fmt, store, rows, cols):
    weight = oracle.random_weight(rng, fmt, rows, cols)
    linear = Linear(Team(1), fmt, weight.data, weight.scale, rows=rows, cols=cols, store=store)
    got = values_of(linear).double().numpy()
    miss, step = np.abs(got - weight.value), steps(weight.value, store)
    # Half a step, and the rounding of the scale itself to 11 (float16, small ones to 2^-24) or 8 (bfloat16) bits.
    slack = np.abs(weight.value) * (2.0**-8 if store == "int4_g32" else 2.0**-11)
    if store == "int8_g32":
        slack += 127 * 2.0**-25
    if store.startswith("int8"):
        assert (miss <= 0.501 * step + slack + 1e-12).all()
    else:
        plain = np.clip(np.round(weight.value / np.maximum(step, 1e-30)), -8, 7) * step - weight.value
        assert (miss**2).sum() <= (plain**2).sum() * 1.02 + 1e-12
    error = cpu.relative_error(linear, torch.from_numpy(weight.value.astype(np.float32)))
    assert error == pytest.approx(np.sqrt((miss**2).sum() / (weight.value**2).sum()), rel=1e-3)


def test_normal_weights_lose_what_theory_says(rng):
    values = rng.standard_normal((256, 512)).astype(np.float32)
    error = {
        store: cpu.relative_error(
            Linear(Team(1), "f32", values.view(np.uint8), rows=256, cols=512, store=store),
            torch.from_numpy(values),
        )
        for store in ("int8", "int8_g32", "int4", "int4_g32")
    }
    assert error["int8_g32"] < error["int8"] < 0.012
    assert error["int4_g32"] < error["int4"] < 0.16
    assert error["int4_g32"] < 0.1


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("mode", ["exact", "fast"])
@pytest.mark.parametrize("store", ["int8", "int8_g32", "int4", "int4_g32"])
def test_experts_with_stored_weights_compute_what_those_weights_say(rng, isa, mode, store):
    hidden, inner, team = 96, 64, Team(2, isa=isa)
    layer = ExpertLayer(team, "bf16", 2, hidden, inner, mode=mode, store=store)
    matrices = []
    for expert in range(2):
        made = [
            oracle.random_weight(rng, "bf16", *shape)
            for shape in ((inner, hidden), (inner, hidden), (hidden, inner))
        ]
        layer.load(expert, *(weight.data for weight in made))
        linears = [Linear(team, "bf16", w.data, rows=w.rows, cols=w.cols, store=store) for w in made]
        matrices.append([values_of(linear) for linear in linears])
    x = torch.from_numpy(rng.standard_normal((3, hidden)).astype(np.float32)) * 0.1
    ids = torch.tensor([[0, 1], [1, 0], [0, 1]], dtype=torch.int32)
    weights = torch.rand(3, 2)
    expected = torch.zeros(3, hidden)
    for token in range(3):
        for choice in range(2):
            gate, up, down = matrices[int(ids[token, choice])]
            h = torch.nn.functional.silu(gate @ x[token]) * (up @ x[token])
            expected[token] += weights[token, choice] * (down @ h)
    error = (layer.forward(x, ids, weights) - expected).norm() / expected.norm()
    assert error < (0.03 if mode == "fast" else 1e-3)


def test_what_cannot_be_made_is_refused(rng):
    weight = oracle.random_weight(rng, "q8_0", 4, 32)
    with pytest.raises(ValueError, match="q8_0 cannot be stored as int4"):
        Linear(Team(1), "q8_0", weight.data, rows=4, cols=32, store="int4")
    with pytest.raises(ValueError, match="no checkpoint holds int8; it is made at load"):
        Linear(Team(1), "int8", np.zeros(128, np.uint8), rows=4, cols=32)
    bad = np.full((4, 32), np.nan, np.float32)
    with pytest.raises(ValueError, match="f32 weight at row 0, column 0 is not a finite number"):
        Linear(Team(1), "f32", bad.view(np.uint8), rows=4, cols=32, store="int8")


@pytest.mark.parametrize("make", [lambda s: s, lambda s: s.numpy()])
def test_scales_whose_bits_mean_something_else_are_refused(make):
    packed = np.zeros(16, np.uint8)
    with pytest.raises(ValueError, match="scales of int4_g32"):
        Linear(Team(1), "int4_g32", packed, make(torch.ones(1, 1).half()), rows=1, cols=32)
