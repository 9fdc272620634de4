"""Zero-padding to sizes that are multiples of 128, with the function computed left as it was.

An RMS norm then averages over more values; its eps and its weights absorb the factor. Added heads have zero
weights, so they attend to nothing and add nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace

from torch import Tensor
from torch.nn.functional import pad

from engine.demo.options import DemoError
from engine.demo.source import DenseLayer, Geometry


def padded_geometry(geometry: Geometry, hidden: int) -> Geometry:
    """The sizes after padding the residual stream to ``hidden`` and the heads to whole groups of 4 key heads."""
    if hidden == geometry.hidden:
        return geometry
    group = geometry.heads // geometry.kv_heads
    kv_heads = -(-geometry.kv_heads // 4) * 4
    if hidden < geometry.hidden:
        raise DemoError(f"hidden {hidden} is smaller than the dense model's {geometry.hidden}")
    return replace(
        geometry,
        hidden=hidden,
        kv_heads=kv_heads,
        heads=kv_heads * group,
        eps=geometry.eps * geometry.hidden / hidden,
    )


def pad_columns(weight: Tensor, geometry: Geometry) -> Tensor:
    """[rows, dense hidden] -> [rows, hidden]."""
    return pad(weight, (0, geometry.hidden - weight.shape[-1]))


def pad_norm(weight: Tensor, geometry: Geometry) -> Tensor:
    """A norm's weights [dense hidden] -> [hidden], made smaller by what the longer mean makes larger."""
    missing = geometry.hidden - weight.shape[0]
    return pad(weight * math.sqrt(weight.shape[0] / geometry.hidden), (0, missing)) if missing else weight


def pad_layer(layer: DenseLayer, geometry: Geometry) -> DenseLayer:
    """A layer of the dense model at the sizes of ``geometry``."""
    query, key = geometry.heads * geometry.head_dim, geometry.kv_heads * geometry.head_dim
    return DenseLayer(
        q=_pad(layer.q, query, geometry.hidden),
        k=_pad(layer.k, key, geometry.hidden),
        v=_pad(layer.v, key, geometry.hidden),
        o=_pad(layer.o, geometry.hidden, query),
        attention_norm=pad_norm(layer.attention_norm, geometry),
        ffn_norm=pad_norm(layer.ffn_norm, geometry),
        gate=pad_columns(layer.gate, geometry),
        up=pad_columns(layer.up, geometry),
        down=_pad(layer.down, geometry.hidden, layer.down.shape[1]),
    )


def _pad(weight: Tensor, rows: int, columns: int) -> Tensor:
    return pad(weight, (0, columns - weight.shape[1], 0, rows - weight.shape[0]))
