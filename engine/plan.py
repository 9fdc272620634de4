"""A model's step, told once: models write it down as if they computed, and the native extension runs it.

A token passes through hundreds of small operations. Each would cost a call from Python, longer than some of them
take, and the interpreter lock would change hands in between; so a `Plan` is run in one call. Its values are `Rows`:
what would be a tensor ``[rows of the step, width]``. Everything that can be wrong is found while it is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from engine import _csrc, cpu

if TYPE_CHECKING:
    from engine.layers.rope import Rope

Score = Literal["sigmoid", "softmax", "topk_softmax"]
"""How a router's logits become scores: each by itself, over all experts, or over the chosen ones only."""


@dataclass(frozen=True, slots=True)
class Routing:
    """A family's way to choose experts.

    Attributes:
        k: Experts a token.
        score: How logits become scores.
        renorm: Whether the chosen ones' weights are divided by their sum.
        groups: ``(n, keep)``: experts in ``n`` equal groups, of which the ``keep`` best count (a group's strength is
            the sum of its two best scores); None for no groups.
        scale: A factor on the weights.
    """

    k: int
    score: Score
    renorm: bool = False
    groups: tuple[int, int] | None = None
    scale: float = 1.0


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


@dataclass(frozen=True, slots=True)
class LatentShape:
    """Multi-head latent attention.

    Attributes:
        heads: Query heads, which share one key.
        value_dim: The first so many numbers of a key are its value.
        scale: Factor on the scores.
    """

    heads: int
    value_dim: int
    scale: float


@dataclass(frozen=True, slots=True)
class Rows:
    """Float32 numbers of each row of a step, or of each row whose logits are wanted (``picked``).

    Attributes:
        plan: Where they are computed.
        buffer: Its memory for them.
        offset: First column in the buffer.
        width: Numbers a row.
        picked: Whether they belong to the rows whose logits are wanted.
    """

    plan: Plan
    buffer: int
    offset: int
    width: int
    picked: bool = False

    @property
    def place(self) -> tuple[int, int, int]:
        """As the extension names it."""
        return self.buffer, self.offset, self.width

    def columns(self, begin: int, end: int) -> Rows:
        """Some of the columns, where they lie."""
        if not 0 <= begin < end <= self.width:
            raise ValueError(f"columns {begin} to {end} of {self.width}")
        return Rows(self.plan, self.buffer, self.offset + begin, end - begin, self.picked)

    def like(self, width: int) -> Rows:
        """New numbers for the same rows."""
        return self.plan.new(width, picked=self.picked)


class Plan:
    """The operations of a step, in the order in which they were told. Not thread-safe."""

    def __init__(self, team: cpu.Team) -> None:
        """An empty plan, to be run by ``team``."""
        self.team = team
        self.native = _csrc.Plan(team.native)
        self._given: list[Rows] = []
        self._kept: list[object] = []
        self._rotations: dict[int, int] = {}

    def new(self, width: int, *, picked: bool = False) -> Rows:
        """Numbers that an operation will fill."""
        return Rows(self, *self.native.buffer(width, picked), picked)

    def given(self, width: int, *, picked: bool = False) -> Rows:
        """Numbers in the caller's memory: `run` gets a tensor for them."""
        rows = self.new(width, picked=picked)
        self.native.bind(rows.place)
        self._given.append(rows)
        return rows

    def keep(self, owner: object) -> None:
        """Keep alive what operations point to."""
        self._kept.append(owner)

    def rotation(self, rope: Rope | None) -> int:
        """The number of a rotation; -1 for None."""
        if rope is None:
            return -1
        if id(rope) not in self._rotations:
            self.keep(rope)
            self._rotations[id(rope)] = self.native.rotation(rope.frequencies, rope.interleaved)
        return self._rotations[id(rope)]

    def run(self, step: _csrc.Step, *tensors: torch.Tensor) -> None:
        """Run all operations.

        Args:
            step: The rows.
            tensors: One for each `given` in their order, contiguous float32 ``[rows, width]``; read and written.

        Raises:
            ValueError: A tensor does not fit, or the step's slots lie outside the cache.
        """
        for rows, tensor in zip(self._given, tensors, strict=True):
            shape = (step.picked if rows.picked else step.rows, rows.width)
            if tensor.shape != shape or tensor.dtype is not torch.float32 or not tensor.is_contiguous():
                raise ValueError(
                    f"a step needs contiguous float32 {list(shape)}, not {tensor.dtype} {list(tensor.shape)}"
                )
        self.native.run(step, [tensor.data_ptr() for tensor in tensors])


def rms_norm(x: Rows, weight: torch.Tensor, eps: float, out: Rows | None = None) -> Rows:
    """``x / sqrt(mean(x^2) + eps) * weight``, over each of the equal groups that the weight's size cuts ``x`` into.

    Args:
        x: The rows.
        weight: ``[width]``, or narrower for groups, such as heads that each have a norm of their own.
        eps: Added to the mean.
        out: Where the result goes (``x`` itself, to work in place); by default new rows.
    """
    out = x.like(x.width) if out is None else out
    x.plan.native.norm(x.place, out.place, weight.numpy(), eps)
    return out


def multiply(maps: Sequence[cpu.Linear], x: Rows, out: Rows | None = None, *, add: bool = False) -> Rows:
    """The maps' outputs for ``x`` side by side: as new rows, or stored in ``out`` or added to it."""
    out = x.like(sum(each.rows for each in maps)) if out is None else out
    x.plan.native.multiply([each.native for each in maps], x.place, out.place, add)
    return out


def silu_product(both: Rows, out: Rows | None = None) -> Rows:
    """``silu(gate) * up`` of rows ``[gate | up]``, as new rows or in ``out``."""
    out = both.like(both.width // 2) if out is None else out
    both.plan.native.silu_product(both.place, out.place)
    return out


def attend(
    shape: AttentionShape,
    rope: Rope | None,
    qkv: Rows,
    cache: torch.Tensor,
    *,
    sinks: torch.Tensor | None = None,
    out: Rows | None = None,
) -> Rows:
    """Rotate queries and keys, store keys and values, and let every row look at its own sequence up to itself.

    Args:
        shape: Heads.
        rope: Rotation of queries and keys, or None.
        qkv: Queries, keys and values side by side; changed.
        cache: One layer's keys and values, of the shape that `KvCache` gives them; written in place.
        sinks: ``[heads]``, a score of each head that takes part in the softmax without a value.
        out: Where the result goes; by default new rows.

    Returns:
        Rows of ``heads * head_dim``.
    """
    if (
        cache.shape[:2] != (2, shape.kv_heads)
        or cache.shape[3] != shape.head_dim
        or cache.dtype is not torch.float32
        or not cache.is_contiguous()
    ):
        raise ValueError(f"attention over a cache {cache.dtype} {list(cache.shape)} with {shape}")
    plan, out = qkv.plan, qkv.like(shape.heads * shape.head_dim) if out is None else out
    plan.keep(cache)
    plan.native.attend(
        shape.heads,
        shape.kv_heads,
        shape.head_dim,
        shape.head_dim**-0.5,
        shape.window,
        None if sinks is None else sinks.numpy(),
        plan.rotation(rope),
        cache.data_ptr(),
        cache.shape[2],
        qkv.place,
        out.place,
    )
    return out


def attend_latent(
    shape: LatentShape, queries: Rows, new_keys: Rows, cache: torch.Tensor, out: Rows | None = None
) -> Rows:
    """Multi-head latent attention in its absorbed form (DeepSeek-V2, https://arxiv.org/abs/2405.04434).

    Args:
        shape: Heads.
        queries: ``heads * key_dim`` a row, rotated and already multiplied into the latent space.
        new_keys: ``key_dim`` a row, rotated: the latent vector, then the rotary part.
        cache: One layer's ``[tokens, key_dim]``, written in place.
        out: Where the result goes; by default new rows.

    Returns:
        Rows of ``heads * value_dim``.
    """
    if cache.dtype is not torch.float32 or not cache.is_contiguous() or cache.shape[1] != new_keys.width:
        raise ValueError(f"latent attention of {new_keys.width} over {cache.dtype} {list(cache.shape)}")
    plan, out = queries.plan, queries.like(shape.heads * shape.value_dim) if out is None else out
    plan.keep(cache)
    plan.native.attend_latent(
        shape.heads,
        new_keys.width,
        shape.value_dim,
        shape.scale,
        cache.data_ptr(),
        cache.shape[0],
        queries.place,
        new_keys.place,
        out.place,
    )
    return out


def mix(  # noqa: PLR0917 (who chooses, what is chosen, for what)
    experts: cpu.ExpertLayer,
    routing: Routing,
    bias: torch.Tensor | None,
    hits: NDArray[np.int64],
    logits: Rows,
    x: Rows,
    out: Rows,
) -> None:
    """Choose experts for each row and add what they make of ``x`` to ``out``.

    Args:
        experts: The layer.
        routing: How they are chosen.
        bias: ``[experts]``, added to the scores for the choice only; or None.
        hits: int64 ``[experts]``; counts the choices.
        logits: The router's.
        x: Inputs.
        out: Changed.
    """
    if hits.shape != (experts.experts,) or hits.dtype != np.int64 or not hits.flags.c_contiguous:
        raise ValueError(f"hits must be one int64 for each of {experts.experts} experts")
    count, keep = routing.groups or (0, 0)
    x.plan.keep(hits)
    x.plan.native.mix(
        experts.native,
        routing.k,
        routing.score,
        count,
        keep,
        routing.renorm,
        routing.scale,
        None if bias is None else bias.numpy(),
        hits.ctypes.data,
        logits.place,
        x.place,
        out.place,
    )


def pick(x: Rows) -> Rows:
    """The rows whose logits are wanted."""
    out = x.plan.new(x.width, picked=True)
    x.plan.native.pick(x.place, out.place)
    return out
