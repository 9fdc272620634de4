import numpy as np
import pytest
import torch

from engine.batch import make_batch
from engine.layers.attention import attend
from engine.pages import PageTable

CPU = torch.device("cpu")


def oracle(queries: np.ndarray, keys: np.ndarray, values: np.ndarray, past: int) -> np.ndarray:
    """Queries ``[new, heads, dim]`` over ``[all, kv_heads, dim]`` in float64, one row and head at a time."""
    new, heads, dim = queries.shape
    group = heads // keys.shape[1]
    out = np.zeros((new, heads, dim))
    for row in range(new):
        for head in range(heads):
            seen = past + row + 1
            scores = keys[:seen, head // group] @ queries[row, head] / np.sqrt(dim)
            weights = np.exp(scores - scores.max())
            out[row, head] = weights @ values[:seen, head // group] / weights.sum()
    return out.reshape(new, -1)


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2), (3, 1)])
@pytest.mark.parametrize(
    "runs",
    [
        [[(0, 64)], [(64, 128)]],
        [[(64, 100), (10, 40)], [(0, 10), (100, 110), (40, 60)]],  # scattered, as after many other sequences
    ],
)
def test_each_sequence_sees_itself_up_to_each_token(heads, kv_heads, runs):
    generator = np.random.default_rng(5)
    tables = [PageTable(list(held)) for held in runs]
    cache = torch.full((2, kv_heads, 128, 16), torch.nan)
    history: list[list[np.ndarray]] = [[], []]
    # Steps of (new tokens of the first, of the second): prompt chunks, single tokens, and both at once.
    for counts in [(7, 3), (1, 5), (6, 1), (1, 1), (15, 0), (0, 2), (1, 1)]:
        active = [i for i in (0, 1) if counts[i]]
        qkv = generator.normal(size=(sum(counts), heads + 2 * kv_heads, 16))
        past = [len(history[i]) for i in active]
        parts = [([0] * counts[i], past[n], tables[i], False) for n, i in enumerate(active)]
        got = attend(torch.tensor(qkv, dtype=torch.float32), cache, make_batch(parts, CPU), heads, kv_heads)
        at = 0
        for n, i in enumerate(active):
            rows = qkv[at : at + counts[i]]
            history[i] += list(rows[:, heads:])
            seen = np.array(history[i])
            expected = oracle(rows[:, :heads], seen[:, :kv_heads], seen[:, kv_heads:], past[n])
            np.testing.assert_allclose(got[at : at + counts[i]].numpy(), expected, atol=2e-6, rtol=1e-5)
            at += counts[i]
