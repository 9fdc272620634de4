"""Operations on rows against float64, for every instruction set of the machine."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine import plan
from engine.batch import make_batch
from engine.cpu import Team, available_isas
from engine.layers.rope import Rope
from engine.pages import PageTable
from tests.engine import eager


@pytest.fixture(params=available_isas())
def team(request):
    return Team(2, isa=request.param)


@pytest.fixture
def rng():
    seed = np.random.SeedSequence().entropy
    print(f"seed {seed}")
    return np.random.default_rng(seed)


def rotated(x: np.ndarray, positions: np.ndarray, dim: int, theta: float, *, interleaved: bool) -> np.ndarray:
    """Each pair of ``[rows, heads, head_dim]`` as a complex number times e^(i * position * theta^(-2j/dim))."""
    out = x.astype(np.float64).copy()
    for j in range(dim // 2):
        a, b = (2 * j, 2 * j + 1) if interleaved else (j, j + dim // 2)
        turned = (out[..., a] + 1j * out[..., b]) * np.exp(1j * positions * theta ** (-2 * j / dim))[:, None]
        out[..., a], out[..., b] = turned.real, turned.imag
    return out


def attention(queries, keys, values, past, *, scale, window=0, sinks=None):
    """Queries ``[new, heads, dim]`` over ``[all, kv_heads, ...]`` in float64, one row and head at a time."""
    new, heads, _ = queries.shape
    group = heads // keys.shape[1]
    out = np.zeros((new, heads, values.shape[2]))
    for row in range(new):
        seen = past + row + 1
        start = max(0, seen - window) if window else 0
        for head in range(heads):
            scores = keys[start:seen, head // group] @ queries[row, head] * scale
            extra = [sinks[head]] if sinks is not None else []
            weights = np.exp(np.append(scores, extra) - max(scores.max(), *extra, -np.inf))
            out[row, head] = weights[: len(scores)] @ values[start:seen, head // group] / weights.sum()
    return out


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim", "rotary"), [(4, 4, 16, 16), (6, 2, 64, 32), (9, 3, 24, 2), (3, 1, 40, 40)]
)
@pytest.mark.parametrize(
    "runs", [[[(0, 64)], [(64, 128)]], [[(64, 96), (16, 64)], [(0, 16), (112, 128), (96, 112)]]]
)
def test_each_sequence_sees_itself_up_to_each_token(
    team, rng, heads, kv_heads, dim, rotary, interleaved, runs
):
    tables = [PageTable(list(held)) for held in runs]
    cache = torch.full((2, kv_heads, 128, dim), torch.nan)
    rope = Rope(rotary, 1000.0, interleaved=interleaved)
    shape = plan.AttentionShape(heads, kv_heads, dim)
    history: list[list[np.ndarray]] = [[], []]
    # Steps of (new tokens of the first, of the second): prompt chunks, single tokens, and both at once.
    for counts in [(7, 3), (1, 5), (6, 1), (1, 1), (35, 0), (0, 2), (1, 1)]:
        active = [i for i in (0, 1) if counts[i]]
        qkv = rng.normal(size=(sum(counts), heads + 2 * kv_heads, dim))
        past = [len(history[i]) for i in active]
        parts = [([0] * counts[i], past[n], tables[i], False) for n, i in enumerate(active)]
        given = torch.tensor(qkv, dtype=torch.float32).flatten(1)
        got = eager.attend(team, make_batch(parts).step, shape, rope, given, cache)
        positions = np.concatenate([p + np.arange(counts[i]) for p, i in zip(past, active, strict=True)])
        turned = rotated(qkv, positions, rotary, 1000.0, interleaved=interleaved)
        at = 0
        for n, i in enumerate(active):
            rows = slice(at, at + counts[i])
            history[i] += list(
                np.concatenate([turned[rows, heads : heads + kv_heads], qkv[rows, heads + kv_heads :]], 1)
            )
            seen = np.array(history[i])
            expected = attention(
                turned[rows, :heads], seen[:, :kv_heads], seen[:, kv_heads:], past[n], scale=dim**-0.5
            )
            np.testing.assert_allclose(
                got[rows].numpy(), expected.reshape(counts[i], -1), atol=2e-5, rtol=1e-4
            )
            at += counts[i]


@pytest.mark.parametrize("new", [1, 3, 40])
@pytest.mark.parametrize(("window", "with_sinks"), [(0, False), (0, True), (100, False), (1500, True)])
def test_a_long_history_with_window_and_sinks(team, rng, new, window, with_sinks):
    heads, kv_heads, dim, past = 8, 2, 32, 4000
    slots = (past + new + 15) // 16 * 16
    cache = torch.tensor(rng.normal(size=(2, kv_heads, slots, dim)), dtype=torch.float32)
    before = cache.double().numpy().copy()
    before[0] = before[0].reshape(kv_heads, -1, dim, 16).swapaxes(2, 3).reshape(kv_heads, slots, dim)
    qkv = torch.tensor(rng.normal(size=(new, (heads + 2 * kv_heads) * dim)), dtype=torch.float32)
    sinks = torch.tensor(rng.normal(size=heads) * 3, dtype=torch.float32) if with_sinks else None
    step = make_batch([([0] * new, past, PageTable([(0, past + new)]), False)]).step
    shape = plan.AttentionShape(heads, kv_heads, dim, window)
    got = eager.attend(team, step, shape, None, qkv, cache, sinks)
    assert torch.equal(got, eager.attend(team, step, shape, None, qkv, cache, sinks))
    one = eager.attend(Team(1, isa=team.isa), step, shape, None, qkv, cache, sinks)
    assert torch.equal(got, one)
    rows = qkv.double().numpy().reshape(new, -1, dim)
    before[0][:, past : past + new] = rows[:, heads : heads + kv_heads].swapaxes(0, 1)
    before[1][:, past : past + new] = rows[:, heads + kv_heads :].swapaxes(0, 1)
    expected = attention(
        rows[:, :heads],
        before[0].swapaxes(0, 1),
        before[1].swapaxes(0, 1),
        past,
        scale=dim**-0.5,
        window=window,
        sinks=None if sinks is None else sinks.double().numpy(),
    )
    np.testing.assert_allclose(got.numpy(), expected.reshape(new, -1), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(("heads", "past", "new"), [(5, 0, 9), (16, 70, 1), (40, 1500, 1), (40, 10, 4)])
def test_latent_attention_shares_one_key_among_all_heads(team, rng, heads, past, new):
    key_dim, value_dim = 72, 56
    cache = torch.tensor(rng.normal(size=(past + new + 3, key_dim)), dtype=torch.float32)
    queries = torch.tensor(rng.normal(size=(new, heads, key_dim)), dtype=torch.float32)
    new_keys = torch.tensor(rng.normal(size=(new, key_dim)), dtype=torch.float32)
    step = make_batch([([0] * new, past, PageTable([(0, past + new)]), False)]).step
    shape = plan.LatentShape(heads, value_dim, 0.1)
    got = eager.apply(
        team,
        step,
        heads * value_dim,
        lambda queries, keys, out: plan.attend_latent(shape, queries, keys, cache, out),
        queries.flatten(1),
        new_keys,
    ).unflatten(1, (heads, value_dim))
    keys = np.concatenate([cache[:past].numpy(), new_keys.numpy()]).astype(np.float64)[:, None]
    expected = attention(queries.double().numpy(), keys, keys[..., :value_dim], past, scale=0.1)
    np.testing.assert_allclose(got.numpy(), expected, atol=2e-5, rtol=1e-4)
    assert torch.equal(cache[past : past + new], new_keys)


@pytest.mark.parametrize("eps", [1e-6, 10.49])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e6])
@pytest.mark.parametrize("shape", [(1, 576), (4, 96), (9, 33), (2, 1)])
def test_norm_agrees_with_float64(team, rng, eps, scale, shape):
    x = torch.tensor(rng.normal(size=shape) * scale, dtype=torch.float32)
    weight = torch.tensor(rng.normal(size=shape[1]), dtype=torch.float32)
    wide = x.double().numpy()
    expected = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + eps) * weight.double().numpy()
    np.testing.assert_allclose(eager.rms_norm(team, x, weight, eps).numpy(), expected, rtol=2e-6, atol=1e-12)
    buffer = torch.cat([x, x], -1)
    got = eager.rms_norm_inside(team, buffer, weight, eps, 0, shape[1])
    np.testing.assert_allclose(got[:, : shape[1]].numpy(), expected, rtol=2e-6, atol=1e-12)
    assert torch.equal(got[:, shape[1] :], x)


@pytest.mark.parametrize("rows", [1, 4, 9])
@pytest.mark.parametrize(("groups", "width"), [(5, 48), (3, 33), (8, 1)])
def test_norm_of_each_group_in_rows_that_lie_apart(team, rng, rows, groups, width):
    x = torch.tensor(rng.normal(size=(rows, groups * width + 7)), dtype=torch.float32)
    weight = torch.tensor(rng.normal(size=width), dtype=torch.float32)
    wide = x.double().numpy()[:, 3 : groups * width + 3].reshape(rows, groups, width)
    expected = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-3) * weight.double().numpy()
    got = eager.rms_norm_inside(team, x, weight, 1e-3, 3, groups * width + 3)
    np.testing.assert_allclose(
        got[:, 3 : groups * width + 3].numpy(), expected.reshape(rows, -1), rtol=2e-6, atol=1e-12
    )
    assert torch.equal(got[:, :3], x[:, :3])
    assert torch.equal(got[:, groups * width + 3 :], x[:, groups * width + 3 :])


@pytest.mark.parametrize("rows", [1, 7])
def test_silu_product_agrees_with_float64(team, rng, rows):
    both = torch.tensor(rng.normal(size=(rows, 2 * 77)) * 10, dtype=torch.float32)
    gate, up = np.split(both.double().numpy(), 2, axis=1)
    np.testing.assert_allclose(
        eager.apply(team, eager.plain_step(rows), 77, plan.silu_product, both).numpy(),
        gate / (1 + np.exp(-gate)) * up,
        rtol=1e-5,
        atol=1e-6,
    )


def test_a_nan_gate_stays_one(team):
    both = torch.tensor([[torch.nan] + [1.0] * 39])
    got = eager.apply(team, eager.plain_step(1), 20, plan.silu_product, both)
    assert got.isnan().tolist() == [[True] + [False] * 19]


def test_wrong_slots_are_refused(team):
    shape, cache, qkv = plan.AttentionShape(2, 1, 16), torch.zeros(2, 1, 64, 16), torch.zeros(1, 64)
    outside = make_batch([([0], 0, PageTable([(112, 176)]), False)]).step
    with pytest.raises(ValueError, match="lie outside a cache of 64 tokens"):
        eager.attend(team, outside, shape, None, qkv, cache)
    scattered = make_batch([([0], 20, PageTable([(0, 8), (16, 64)]), False)]).step
    with pytest.raises(ValueError, match="whole blocks of 16, but a run of 8 begins at 0"):
        eager.attend(team, scattered, shape, None, qkv, cache)
