"""A plan as a whole: memory that operations share, rows whose logits are wanted, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine import plan
from engine.batch import make_batch
from engine.cpu import ExpertLayer, Linear, Team
from engine.layers.rope import Rope
from engine.pages import PageTable
from tests.engine import eager


@pytest.fixture
def team():
    return Team(2)


def linear(team: Team, weight: torch.Tensor) -> Linear:
    return Linear(team, "f32", weight.view(torch.uint8), rows=weight.shape[0], cols=weight.shape[1])


@pytest.mark.parametrize("rows", [1, 5, 70])
def test_values_live_as_long_as_they_are_read(team, rows):
    """A chain that goes back to old values after many others were made and forgotten."""
    rng = torch.Generator().manual_seed(rows)
    weights = [torch.randn(24, 24, generator=rng) / 5 for _ in range(6)]
    told = plan.Plan(team)
    x = told.given(24)
    out = told.given(24)
    first = plan.multiply([linear(team, weights[0])], x)
    at = first
    for weight in weights[1:]:
        at = plan.multiply([linear(team, weight)], at)
    plan.multiply([linear(team, weights[0])], at, out)
    plan.multiply([linear(team, weights[1])], first, out, add=True)
    value = torch.randn(rows, 24, generator=rng)
    expected = value.double()
    for weight in weights:
        expected = expected @ weight.double().T
    expected = (
        expected @ weights[0].double().T + value.double() @ weights[0].double().T @ weights[1].double().T
    )
    for _ in range(2):
        result = torch.full((rows, 24), torch.nan)
        told.run(eager.plain_step(rows), value.clone(), result)
        torch.testing.assert_close(result, expected.float(), rtol=1e-4, atol=1e-5)


def test_a_plan_runs_steps_of_any_size_in_turn(team):
    told = plan.Plan(team)
    both, out = told.given(14), told.given(7)
    plan.silu_product(both, out)
    for rows in (3, 200, 1, 9):
        value = torch.randn(rows, 14)
        result = torch.empty(rows, 7)
        told.run(eager.plain_step(rows), value, result)
        torch.testing.assert_close(result, torch.nn.functional.silu(value[:, :7]) * value[:, 7:])


def test_maps_of_several_formats_fill_one_row(team):
    """As q, k and v do where a file stores them differently; with few rows and with many."""
    rng = np.random.default_rng(1)
    weights = [torch.tensor(rng.normal(size=(rows, 64)), dtype=torch.float32) for rows in (40, 24, 17)]
    maps = [linear(team, weights[0])]
    half = weights[1].bfloat16()
    maps.append(Linear(team, "bf16", half.view(torch.uint8), rows=24, cols=64))
    maps.append(linear(team, weights[2]))
    for rows in (1, 3, 100):
        x = torch.tensor(rng.normal(size=(rows, 64)), dtype=torch.float32)
        got = eager.apply(team, eager.plain_step(rows), 81, lambda x, out: plan.multiply(maps, x, out), x)
        assert torch.equal(got, torch.cat([each(x) for each in maps], 1))
        every = [weights[0].double(), half.double(), weights[2].double()]
        expected = torch.cat([x.double() @ weight.T for weight in every], 1)
        torch.testing.assert_close(got, expected.float(), rtol=2e-2, atol=0.1)


@pytest.mark.parametrize("wanted", [(True, True), (False, True), (False, False)])
def test_logits_are_computed_for_the_rows_that_want_them(team, wanted):
    told = plan.Plan(team)
    x = told.given(6)
    out = told.given(4, picked=True)
    weight = torch.randn(4, 6)
    plan.multiply([linear(team, weight)], plan.pick(x), out)
    parts = [([0] * n, 0, PageTable([(0, n)]), w) for n, w in zip((3, 2), wanted, strict=True)]
    value = torch.randn(5, 6)
    result = torch.empty(sum(wanted), 4)
    told.run(make_batch(parts).step, value, result)
    chosen = [row for row, w in zip((2, 4), wanted, strict=True) if w]
    torch.testing.assert_close(result, value[chosen] @ weight.T, rtol=1e-5, atol=1e-6)


def test_what_does_not_fit_is_refused_when_it_is_told(team):
    told = plan.Plan(team)
    x, wide = told.new(16), told.new(64)
    with pytest.raises(ValueError, match="norm of 16 columns to 16 columns with a weight of 5"):
        plan.rms_norm(x, torch.ones(5), 1e-3)
    with pytest.raises(ValueError, match="map of 8 inputs is given 16 columns"):
        plan.multiply([linear(team, torch.zeros(3, 8))], x)
    with pytest.raises(ValueError, match="maps with 3 outputs are told to fill 64 columns"):
        plan.multiply([linear(team, torch.zeros(3, 16))], x, wide)
    with pytest.raises(ValueError, match="whole rows here, not 8 columns of 16"):
        plan.multiply([linear(team, torch.zeros(3, 8))], x.columns(0, 8))
    with pytest.raises(ValueError, match="columns 8 to 17 of 16"):
        x.columns(8, 17)
    with pytest.raises(ValueError, match="gate and up of 16 columns for a product of 64"):
        plan.silu_product(x, wide)
    with pytest.raises(ValueError, match="mixes all rows with the picked ones"):
        plan.rms_norm(x, torch.ones(16), 1e-3, out=told.new(16, picked=True))
    cache = torch.zeros(2, 1, 64, 16)
    with pytest.raises(ValueError, match="attention of 2 heads is given 16 columns"):
        plan.attend(plan.AttentionShape(2, 1, 16), None, x, cache)
    with pytest.raises(ValueError, match="attention over a cache"):
        plan.attend(plan.AttentionShape(2, 1, 8), None, wide, cache)
    with pytest.raises(ValueError, match="1 sinks for 2 heads"):
        plan.attend(plan.AttentionShape(2, 1, 16), None, wide, cache, sinks=torch.zeros(1))
    with pytest.raises(ValueError, match="rotation is wider than a head"):
        plan.attend(plan.AttentionShape(2, 1, 16), Rope(32, 1e4, interleaved=False), wide, cache)
    with pytest.raises(ValueError, match="latent attention of 2 heads"):
        plan.attend_latent(plan.LatentShape(2, 8, 1.0), wide, x, torch.zeros(64, 16))


def test_experts_that_do_not_fit_are_refused(team):
    told = plan.Plan(team)
    x, logits = told.new(16), told.new(4)
    layer, way = ExpertLayer(team, "f32", 4, 16, 8), plan.Routing(2, "softmax")
    hits = np.zeros(4, dtype=np.int64)
    with pytest.raises(ValueError, match="hits must be one int64 for each of 4 experts"):
        plan.mix(layer, way, None, hits[:3], logits, x, x)
    with pytest.raises(ValueError, match="must agree on a number of experts, not 16, 0 and 4"):
        plan.mix(layer, way, None, hits, x, x, x)
    with pytest.raises(ValueError, match="experts of width 16 are given 4 columns"):
        plan.mix(layer, way, None, hits, logits, logits, x)


def test_tensors_of_another_shape_are_refused(team):
    told = plan.Plan(team)
    both, out = told.given(8), told.given(4)
    plan.silu_product(both, out)
    step = eager.plain_step(2)
    for tensor in (torch.zeros(2, 9), torch.zeros(3, 8), torch.zeros(2, 8).double(), torch.zeros(8, 2).T):
        with pytest.raises(ValueError, match=r"a step needs contiguous float32 \[2, 8\]"):
            told.run(step, tensor, torch.zeros(2, 4))
