"""Mixture-of-experts layers of every format and instruction set against the float64 oracle."""

from __future__ import annotations

import os

import kernel_cases as cases
import kernel_oracle as oracle
import numpy as np
import pytest
import torch

from engine import _csrc
from engine.cpu import ExpertLayer, Team, available_isas


@pytest.fixture(params=available_isas())
def team(request: pytest.FixtureRequest) -> _csrc.Team:
    return _csrc.Team(_csrc.usable_cores()[:2], request.param)


@pytest.fixture
def rng() -> np.random.Generator:
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed}")
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    ("fmt", "mode", "shape"),
    [
        (fmt, mode, shape)
        for fmt in oracle.FORMATS
        for mode in (("exact", "fast") if fmt in oracle.BLOCK_FORMATS else ("exact",))
        for shape in cases.expert_shapes(fmt)
    ],
)
def test_every_shape_and_routing_stays_within_the_bound(team, rng, fmt, mode, shape):
    assert cases.experts_error(_csrc, team, rng, fmt, *shape, mode) <= 1


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("fmt", oracle.FORMATS)
def test_results_do_not_depend_on_threads_or_nodes(rng, fmt, isa):
    align = oracle.WHOLE_BLOCKS.get(fmt, 1)
    hidden, intermediate, count, k = (100, 76, 6, 3) if align == 1 else (3 * align, 2 * align, 6, 3)
    cpu = _csrc.usable_cores()[0][0]
    layers = []
    state = rng.bit_generator.state
    for cores in ([(cpu, 0)], [(cpu, 0)] * 3, [(cpu, 0), (cpu, 0), (cpu, 1)]):
        rng.bit_generator.state = state
        layers.append(
            cases.load_experts(_csrc, _csrc.Team(cores, isa), rng, fmt, hidden, intermediate, count)[0]
        )
    for tokens in (1, 4, 90):
        ids, weights = cases.routing(rng, tokens, count, k)
        x = cases.activations(rng, tokens, hidden)
        first, *others = (layer.forward(x, ids, weights) for layer in layers)
        assert all(np.array_equal(first, other) for other in others)


def test_a_pass_longer_than_the_workspace_gives_the_same_as_short_ones(rng):
    hidden, intermediate, count = 32, 16, 3
    team = _csrc.Team(_csrc.usable_cores(), available_isas()[-1])
    layer, matrices = cases.load_experts(_csrc, team, rng, "bf16", hidden, intermediate, count)
    tokens = 5000
    x = cases.activations(rng, tokens, hidden)
    ids = rng.integers(0, count, (tokens, 2)).astype(np.int32)  # the same expert may occur twice
    weights = rng.random((tokens, 2)).astype(np.float32)
    expected, size, step = oracle.experts_forward(*matrices, x, ids, weights)
    bound = oracle.experts_bound(size, step, "bf16", team.isa, max(hidden, intermediate), "exact", 1)
    assert (np.abs(layer.forward(x, ids, weights) - expected) <= bound).all()


def test_only_loaded_experts_count_and_loading_again_replaces(rng):
    team = Team(1)
    layer = ExpertLayer(team, "f32", 4, 8, 8)
    x, weights = torch.randn(1, 8), torch.ones(1, 1)

    def load(scale: float) -> None:
        layer.load(2, torch.eye(8), torch.eye(8) * scale, torch.eye(8))

    assert layer.nbytes == 0
    with pytest.raises(ValueError, match="token 0 was routed to expert 2, which is not loaded"):
        layer.forward(x, torch.tensor([[2]], dtype=torch.int32), weights)
    for scale in (1.0, 3.0):
        load(scale)
        y = layer.forward(x, torch.tensor([[2]], dtype=torch.int32), weights)
        torch.testing.assert_close(y, torch.nn.functional.silu(x) * x * scale)
    assert layer.nbytes == 3 * 16 * 8 * 4  # rows are padded to tiles of 16


def test_extreme_gates_saturate_like_silu():
    layer = ExpertLayer(Team(1), "f32", 1, 4, 4)
    layer.load(0, torch.eye(4), torch.eye(4), torch.eye(4))
    x = torch.tensor([[1e4, -1e4, 90.0, -90.0], [0.0, -0.0, 1e-30, float("nan")]])
    y = layer.forward(x, torch.zeros(2, 1, dtype=torch.int32), torch.ones(2, 1))
    expected = torch.nn.functional.silu(x.double()) * x.double()
    # NaN reaches every output of its row, because each is a sum over all of them.
    torch.testing.assert_close(y[0], expected[0].float(), rtol=1e-5, atol=1e-30)
    assert torch.isnan(y[1]).all()


def test_no_token_and_no_expert_here_give_zero_rows():
    layer = ExpertLayer(Team(1), "f32", 1, 4, 4)
    layer.load(0, torch.eye(4), torch.eye(4), torch.eye(4))
    none = layer.forward(torch.ones(0, 4), torch.zeros(0, 2, dtype=torch.int32), torch.ones(0, 2))
    assert none.shape == (0, 4)
    skipped = layer.forward(torch.ones(3, 4), torch.full((3, 2), -7, dtype=torch.int32), torch.ones(3, 2))
    assert (skipped == 0).all()


@pytest.mark.parametrize(
    ("ids", "weights", "message"),
    [
        (np.zeros((2, 1), np.int64), np.ones((2, 1), np.float32), "ids must have dtype int32"),
        (np.zeros((3, 1), np.int32), np.ones((3, 1), np.float32), "ids must have shape"),
        (np.zeros((2, 1), np.int32), np.ones((2, 2), np.float32), "weights must have shape"),
        (np.full((2, 1), 5, np.int32), np.ones((2, 1), np.float32), "token 0 was routed to expert 5"),
    ],
)
def test_wrong_routing_is_refused_with_its_reason(ids, weights, message):
    team = _csrc.Team(_csrc.usable_cores()[:1], "scalar")
    layer = _csrc.Experts(team, "f32", 1, 4, 4, "exact")
    layer.load(0, *[np.zeros(64, np.uint8)] * 3, None, None, None)
    with pytest.raises(ValueError, match=message):
        layer.forward(np.zeros((2, 4), np.float32), ids, weights)


def test_wrong_experts_are_refused_with_their_reason():
    team = _csrc.Team(_csrc.usable_cores()[:1], "scalar")
    with pytest.raises(ValueError, match="unknown weight format 'q9_k'; known are f32, bf16"):
        _csrc.Experts(team, "q9_k", 1, 32, 32, "exact")
    with pytest.raises(ValueError, match="between 1 and"):
        _csrc.Experts(team, "f32", 0, 32, 32, "exact")
    layer = _csrc.Experts(team, "fp8_block128", 2, 4, 4, "exact")
    good, one = np.zeros(16, np.uint8), np.ones((1, 1), np.float32)
    with pytest.raises(ValueError, match="expert 2 does not exist; there are 2"):
        layer.load(2, good, good, good, one, one, one)
    with pytest.raises(ValueError, match="expert 1, up: FP8 weight at row 3, column 3 is not a number"):
        layer.load(1, good, np.where(np.arange(16) == 15, 0x7F, 0).astype(np.uint8), good, one, one, one)
    with pytest.raises(ValueError, match="down must be 16 bytes"):
        layer.load(1, good, good, good[:-1], one, one, one)
