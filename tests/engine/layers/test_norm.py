import numpy as np
import pytest
import torch

from engine.cpu import Team
from engine.layers.norm import RmsNorm
from engine.plan import Plan
from tests.engine import eager


@pytest.mark.parametrize("eps", [1e-6, 10.49])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e6])
def test_norm_agrees_with_float64(eps, scale):
    generator = torch.Generator().manual_seed(3)
    x, weight = torch.randn(4, 96, generator=generator) * scale, torch.randn(96, generator=generator)
    wide = x.double().numpy()
    expected = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + eps) * weight.double().numpy()
    norm, told = RmsNorm(weight, eps), Plan(Team(1))
    buffer = torch.cat([x, x], -1)
    rows = told.given(192)
    norm.inplace(rows.columns(0, 96))
    norm.inplace(rows.columns(96, 192))
    told.run(eager.plain_step(4), buffer)
    for half in (buffer[:, :96], buffer[:, 96:]):
        np.testing.assert_allclose(half.numpy(), expected, rtol=2e-6, atol=1e-12)
