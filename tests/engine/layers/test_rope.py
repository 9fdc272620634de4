import numpy as np
import pytest
import torch

from engine.layers.rope import Rope


def rotated(x: np.ndarray, positions: list[int], dim: int, theta: float, *, interleaved: bool) -> np.ndarray:
    """Each pair as a complex number times e^(i * position * theta^(-2j/dim)), in float64."""
    out = x.astype(np.float64).copy()
    for row, position in enumerate(positions):
        for j in range(dim // 2):
            a, b = (2 * j, 2 * j + 1) if interleaved else (j, j + dim // 2)
            turned = (out[row, :, a] + 1j * out[row, :, b]) * np.exp(1j * position * theta ** (-2 * j / dim))
            out[row, :, a], out[row, :, b] = turned.real, turned.imag
    return out


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("head_dim", "dim"), [(64, 64), (64, 32), (32, 2)])
def test_pairs_are_rotated_by_their_position(interleaved, head_dim, dim):
    positions = [0, 1, 7, 500, 3]
    buffer = torch.randn(5, 6, head_dim, generator=torch.Generator().manual_seed(1))
    before = buffer.clone()
    rope = Rope(dim, 10000.0, interleaved=interleaved, device=torch.device("cpu"))
    rope.rotate(buffer[:, 1:4], rope.angles(torch.tensor(positions)))
    expected = rotated(before[:, 1:4].numpy(), positions, dim, 10000.0, interleaved=interleaved)
    # float32 angles up to 500 are exact to 3e-5.
    np.testing.assert_allclose(buffer[:, 1:4].numpy(), expected, atol=2e-4)
    assert torch.equal(buffer[:, [0, 4, 5]], before[:, [0, 4, 5]])
    assert torch.equal(buffer[..., dim:], before[..., dim:])
