import numpy as np
import pytest
import torch

from engine.cpu import Team
from engine.layers.norm import RmsNorm


@pytest.mark.parametrize("eps", [1e-6, 10.49])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e6])
def test_norm_agrees_with_float64(eps, scale):
    generator = torch.Generator().manual_seed(3)
    x, weight = torch.randn(4, 96, generator=generator) * scale, torch.randn(96, generator=generator)
    wide = x.double().numpy()
    expected = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + eps) * weight.double().numpy()
    norm = RmsNorm(Team(1), weight, eps)
    np.testing.assert_allclose(norm(x).numpy(), expected, rtol=2e-6, atol=1e-12)
    buffer = torch.cat([x, x], -1)
    norm.inplace(buffer[:, :96])
    np.testing.assert_allclose(buffer[:, :96].numpy(), expected, rtol=2e-6, atol=1e-12)
    assert torch.equal(buffer[:, 96:], x)
