"""A dense model as a mixture of experts that computes the same function.

*Sign-pair routing.* The feed-forward layer is cut into S shards of hidden units; their outputs add up to the
whole. Each shard has two replicas with router rows +v and -v, so for any token exactly one of the two has a
positive logit, and a top-S router takes one replica of every shard: 2^S patterns, chosen by the token. Router
rows are scaled by 2^24, so the sigmoid saturates to exactly 1 or 0 and the normalised weights are exactly 1/S;
the down projection is scaled by S, exact for a power of two. The correction bias lies in [-0.95, -0.15]: chosen
experts score 1 + b > 0.05, the others b < -0.15, but a router that lets the bias into the *weights* is wrong by up
to a factor of 17. Wrong routers of any common kind give nonsense in place of English.

*Neutral query and key norms.* RMSNorm(q) = q w / sqrt(mean(q^2) + eps), always on in this family. The residual
stream is scaled by 2^10 (embedding, output and down projections) and eps by 2^20, which leaves every layer norm's
result as it was and makes eps about 10. Query and key projections are scaled by 2^-14, so mean(q^2) is nothing
against eps, the norm is the constant 1 / sqrt(eps), and its weight sqrt(eps) 2^14 undoes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import Enum

import torch
from torch import Tensor

from engine.demo.options import DemoOptions
from engine.demo.padding import pad_columns, pad_layer, pad_norm
from engine.demo.source import DenseLayer, DenseModel, Geometry

RESIDUAL_SCALE = 2.0**10
QUERY_KEY_SCALE = 2.0**-14
ROUTER_SCALE = 2.0**24
DECOY_BIAS = -4.0


class Role(Enum):
    """How a tensor may be stored."""

    LINEAR = "linear"
    """Quantised where the checkpoint is."""
    PLAIN = "plain"
    """bfloat16, or float32 in a float32 checkpoint."""
    EXACT = "exact"
    """Always float32."""


Named = tuple[str, Tensor, Role]


def moe_tensors(dense: DenseModel, geometry: Geometry, options: DemoOptions) -> Iterator[Named]:
    """All tensors of the checkpoint in float32, in file order, one layer in memory at a time.

    Args:
        dense: The model to turn.
        geometry: Its sizes after padding.
        options: Shards, decoys, seed.
    """
    random = torch.Generator().manual_seed(options.seed)
    embedding = pad_columns(dense.tensor("token_embd.weight"), geometry)
    yield "model.embed_tokens.weight", embedding * RESIDUAL_SCALE, Role.PLAIN
    yield "model.norm.weight", pad_norm(dense.tensor("output_norm.weight"), geometry), Role.PLAIN
    yield "lm_head.weight", embedding, Role.PLAIN
    del embedding
    target = math.sqrt(scaled_eps(geometry)) / QUERY_KEY_SCALE
    norm_weights = (target, target) if options.store == "fp32" else bf16_pair(target * target)
    for index in range(geometry.layers):
        layer = pad_layer(dense.layer(index), geometry)
        prefix = f"model.layers.{index}."
        yield from _attention(prefix, layer, norm_weights)
        yield from _experts(prefix + "block_sparse_moe.", layer, geometry, options, random)


def _attention(prefix: str, layer: DenseLayer, norm_weights: tuple[float, float]) -> Iterator[Named]:
    yield prefix + "input_layernorm.weight", layer.attention_norm, Role.PLAIN
    yield prefix + "post_attention_layernorm.weight", layer.ffn_norm, Role.PLAIN
    attention = prefix + "self_attn."
    yield attention + "q_proj.weight", layer.q * QUERY_KEY_SCALE, Role.LINEAR
    yield attention + "k_proj.weight", layer.k * QUERY_KEY_SCALE, Role.LINEAR
    yield attention + "v_proj.weight", layer.v, Role.LINEAR
    yield attention + "o_proj.weight", layer.o * RESIDUAL_SCALE, Role.LINEAR
    query, key = norm_weights
    yield attention + "q_norm.weight", torch.full((layer.q.shape[0],), query), Role.PLAIN
    yield attention + "k_norm.weight", torch.full((layer.k.shape[0],), key), Role.PLAIN


def _experts(
    prefix: str, layer: DenseLayer, geometry: Geometry, options: DemoOptions, random: torch.Generator
) -> Iterator[Named]:
    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random)

    def expert(number: int, gate: Tensor, up: Tensor, down: Tensor) -> Iterator[Named]:
        for name, weight in (("w1", gate), ("w3", up), ("w2", down)):
            yield f"{prefix}experts.{number}.{name}.weight", weight, Role.LINEAR

    down = layer.down * RESIDUAL_SCALE
    parts = torch.randperm(geometry.ffn, generator=random).chunk(options.shards)
    slots = torch.randperm(expert_count(options), generator=random).tolist()
    router = torch.zeros(expert_count(options), geometry.hidden)
    bias = torch.zeros(expert_count(options))
    for shard, units in enumerate(parts):
        direction = normal(geometry.hidden) * ROUTER_SCALE
        for replica, sign in enumerate((1.0, -1.0)):
            slot = slots[2 * shard + replica]
            shuffled = units[torch.randperm(len(units), generator=random)]
            scaled_down = down[:, shuffled] * float(options.shards)
            yield from expert(slot, layer.gate[shuffled], layer.up[shuffled], scaled_down)
            router[slot] = sign * direction
            bias[slot] = -0.95 + 0.8 * torch.rand(1, generator=random).item()
    width = len(parts[0])
    for slot in slots[2 * options.shards :]:
        yield from expert(
            slot,
            normal(width, geometry.hidden) * 0.1,
            normal(width, geometry.hidden) * 0.1,
            normal(geometry.hidden, width) * 0.1 * RESIDUAL_SCALE,
        )
        router[slot] = normal(geometry.hidden) * ROUTER_SCALE
        bias[slot] = DECOY_BIAS
    yield prefix + "gate.weight", router.to(torch.bfloat16).float(), Role.EXACT
    yield prefix + "e_score_correction_bias", bias, Role.EXACT


def expert_count(options: DemoOptions) -> int:
    """Experts of a layer: two replicas of each shard, and the decoys."""
    return 2 * options.shards + options.decoys


def scaled_eps(geometry: Geometry) -> float:
    """The checkpoint's ``rms_norm_eps``, in units of its scaled residual stream."""
    return geometry.eps * RESIDUAL_SCALE * RESIDUAL_SCALE


def bf16_pair(product: float) -> tuple[float, float]:
    """Two bfloat16 numbers near each other whose product comes closest to ``product``."""
    root = 2.0 ** math.floor(math.log2(math.sqrt(product)))
    candidates = [root * (1 + step / 128) for step in range(129)]

    def misfit(pair: tuple[float, float]) -> float:
        return abs(pair[0] * pair[1] / product - 1) + 1e-7 * abs(pair[0] - pair[1]) / root

    return min(((a, b) for a in candidates for b in candidates), key=misfit)
