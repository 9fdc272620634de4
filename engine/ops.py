"""Operations on rows of activations, on the thread team of `engine.cpu`.

Each is one call of the native extension with addresses, because a token takes hundreds of them: types and shapes are
checked here. All tensors are float32 on the CPU and contiguous unless said otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from engine import _csrc
from engine.batch import Batch
from engine.cpu import Team
from engine.router import Score


def _check(x: torch.Tensor, name: str) -> torch.Tensor:
    if x.dtype is not torch.float32 or not x.is_contiguous():
        raise ValueError(f"{name} must be contiguous float32, not {x.dtype} with strides {x.stride()}")
    return x


def rms_norm(
    team: Team,
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    out: torch.Tensor | None = None,
    *,
    groups: int = 1,
) -> torch.Tensor:
    """``x / sqrt(mean(x^2) + eps) * weight`` over each of the equal groups that a row is made of.

    Args:
        team: Shares the work of many rows.
        x: ``[rows, groups * width]``; rows may lie apart.
        weight: ``[width]``, the same for all groups.
        eps: Added to the mean.
        out: Where the result goes, of the shape of ``x`` (``x`` itself, to work in place); by default a new tensor.
        groups: Groups a row, such as heads that each have a norm of their own.

    Raises:
        ValueError: Shapes don't fit, or the values of a row lie apart.
    """
    rows, total = x.shape
    width = weight.numel()
    if out is None:
        out = torch.empty(rows, total)
    _check(weight, "norm weight")
    if x.stride(1) != 1 or out.stride(1) != 1 or out.shape != x.shape or groups * width != total:
        raise ValueError(
            f"norm of {tuple(x.shape)} in {groups} groups to {tuple(out.shape)} with a weight of {width}"
        )
    _csrc.rms_norm(
        team.native,
        x.data_ptr(),
        rows,
        groups,
        width,
        x.stride(0),
        weight.data_ptr(),
        eps,
        out.data_ptr(),
        out.stride(0),
    )
    return out


def silu_product(team: Team, both: torch.Tensor) -> torch.Tensor:
    """``silu(gate) * up`` of rows ``[gate | up]``: ``[rows, 2 * inner]`` to ``[rows, inner]``."""
    rows, inner = both.shape[0], both.shape[1] // 2
    out = torch.empty(rows, inner)
    _csrc.silu_product(team.native, _check(both, "gate and up").data_ptr(), rows, inner, out.data_ptr())
    return out


def route(
    team: Team,
    logits: torch.Tensor,
    bias: torch.Tensor | None,
    hits: NDArray[np.int64],
    *,
    k: int,
    score: Score,
    groups: tuple[int, int] | None = None,
    renorm: bool = False,
    scale: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`engine.router.route`, natively; also counts the choices in ``hits``."""
    tokens, experts = logits.shape
    if hits.shape != (experts,) or hits.dtype != np.int64 or (bias is not None and bias.numel() != experts):
        raise ValueError(f"hits and bias must have one number for each of {experts} experts")
    ids, weights = torch.empty(tokens, k, dtype=torch.int32), torch.empty(tokens, k)
    count, keep = groups or (0, 0)
    _csrc.route(
        team.native,
        _check(logits, "router logits").data_ptr(),
        0 if bias is None else _check(bias, "router bias").data_ptr(),
        tokens,
        experts,
        k,
        score,
        count,
        keep,
        renorm,
        scale,
        ids.data_ptr(),
        weights.data_ptr(),
        hits.ctypes.data,
    )
    return ids, weights


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Grouped-query attention.

    Attributes:
        heads: Query heads; ``heads / kv_heads`` neighbouring ones share a key head.
        kv_heads: Key and value heads.
        head_dim: Numbers a head.
        window: Positions that a token looks back at, itself included; 0 means all.
    """

    heads: int
    kv_heads: int
    head_dim: int
    window: int = 0


def make_step(batch: Batch, cosine: torch.Tensor, sine: torch.Tensor, *, interleaved: bool) -> _csrc.Step:
    """What a step's attention calls share.

    Args:
        batch: The rows.
        cosine: ``[rows, half]`` of the rotations of each row's position.
        sine: As ``cosine``.
        interleaved: Whether a rotated pair is ``(2i, 2i + 1)`` rather than ``(i, i + half)``.
    """
    segments = [(part.begin, part.end, part.past, list(part.slots)) for part in batch.segments]
    return _csrc.Step(segments, cosine.numpy(), sine.numpy(), interleaved)


def attend(  # noqa: PLR0917 (what attends to what)
    team: Team,
    step: _csrc.Step,
    shape: AttentionShape,
    qkv: torch.Tensor,
    cache: torch.Tensor,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Rotate queries and keys, store keys and values, and let every row look at its own sequence up to itself.

    Args:
        team: Computes.
        step: From `make_step`.
        shape: Heads.
        qkv: ``[rows, (heads + 2 * kv_heads) * head_dim]``: queries, keys and values; changed.
        cache: One layer's keys and values, of the shape that `KvCache` gives them; written in place.
        sinks: ``[heads]``, a score of each head that takes part in the softmax without a value.

    Returns:
        ``[rows, heads * head_dim]``.
    """
    rows, width = qkv.shape
    expected = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    if (
        rows != step.rows
        or width != expected
        or cache.shape[:2] != (2, shape.kv_heads)
        or cache.shape[3] != shape.head_dim
    ):
        raise ValueError(f"attention of {tuple(qkv.shape)} over {tuple(cache.shape)} with {shape}")
    if sinks is not None and sinks.numel() != shape.heads:
        raise ValueError(f"{sinks.numel()} sinks for {shape.heads} heads")
    out = torch.empty(rows, shape.heads * shape.head_dim)
    _csrc.attend_grouped(
        team.native,
        step,
        shape.heads,
        shape.kv_heads,
        shape.head_dim,
        shape.head_dim,
        shape.head_dim**-0.5,
        shape.window,
        0 if sinks is None else _check(sinks, "sinks").data_ptr(),
        _check(qkv, "qkv").data_ptr(),
        _check(cache, "cache")[0].data_ptr(),
        cache[1].data_ptr(),
        cache.shape[2],
        out.data_ptr(),
    )
    return out


def attend_latent(  # noqa: PLR0917 (what attends to what)
    team: Team,
    step: _csrc.Step,
    queries: torch.Tensor,
    new_keys: torch.Tensor,
    cache: torch.Tensor,
    value_dim: int,
    scale: float,
) -> torch.Tensor:
    """Multi-head latent attention in its absorbed form (DeepSeek-V2, https://arxiv.org/abs/2405.04434).

    Args:
        team: Computes.
        step: From `make_step`; its rotations are not used, queries and keys come rotated.
        queries: ``[rows, heads, key_dim]``, already multiplied into the latent space.
        new_keys: ``[rows, key_dim]``: the latent vector, then the rotary part.
        cache: One layer's ``[tokens, key_dim]``, written in place.
        value_dim: The first so many numbers of a key are its value.
        scale: Factor on the scores.

    Returns:
        ``[rows, heads, value_dim]``.
    """
    rows, heads, key_dim = queries.shape
    if (
        rows != step.rows
        or new_keys.shape != (rows, key_dim)
        or cache.shape[1] != key_dim
        or not 0 < value_dim <= key_dim
    ):
        raise ValueError(f"latent attention of {tuple(queries.shape)} over {tuple(cache.shape)}")
    out = torch.empty(rows, heads, value_dim)
    _csrc.attend_latent(
        team.native,
        step,
        heads,
        key_dim,
        value_dim,
        scale,
        _check(queries, "queries").data_ptr(),
        _check(new_keys, "new keys").data_ptr(),
        _check(cache, "cache").data_ptr(),
        cache.shape[0],
        out.data_ptr(),
    )
    return out
