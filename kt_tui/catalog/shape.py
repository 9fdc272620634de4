"""The shape of a model: every dimension that decides how many bytes it takes, from whichever source tells it.

Sources are the catalogue (``models.toml``), a ``config.json`` in any family's spelling, and GGUF metadata. Counts are
of parameters; what a parameter takes depends on the format (`BITS`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_MOST = 1 << 31

BITS: Mapping[str, float] = {
    "fp32": 32.0,
    "bf16": 16.0,
    "fp16": 16.0,
    "fp8": 8.0 + 32 / (128 * 128),
    "fp8-channel": 8.0,
    "int8": 8.0,
    "int4": 4.0 + 16 / 32,
    "gptq-int4": 4.0 + (16 + 4) / 128,
    "mxfp4": 4.0 + 8 / 32,
    "mxfp8": 8.0 + 8 / 32,
    "q8_0": 8.5,
    "q6_k": 6.5625,
    "q5_k": 5.5,
    "q4_k": 4.5,
    # A mixture: most tensors in Q4_K, some of the down projections and attention in Q6_K.
    "q4_k_m": 4.82,
}
"""Bits of a parameter with its share of the scales, by format. Only ``q4_k_m`` is an average."""


class ShapeError(ValueError):
    """A dimension is missing or makes no sense; the message names its key."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Dimensions of a model. All counts; widths in elements. What a model does not have is 0.

    Attributes:
        layers: Transformer layers, without those of multi-token prediction.
        hidden: Width of the residual stream.
        vocab: Tokens of the vocabulary.
        context_length: Tokens of a sequence that the model was made for.
        attention: ``gqa`` or ``mla``.
        heads: Query heads.
        kv_heads: Key and value heads (``gqa``).
        head_dim: Width of a head (``gqa``).
        q_lora: Width of the compressed query (``mla``).
        kv_lora: Width of the compressed keys and values (``mla``).
        nope_dim: Part of a head without position (``mla``).
        rope_dim: Part of a head with position (``mla``).
        v_dim: Width of a head's value (``mla``).
        dense_layers: First layers with a dense feed-forward part in place of experts.
        dense_intermediate: Inner width of a dense layer.
        experts: Routed experts of a layer; 0 for a dense model.
        experts_per_token: Routed experts that a token passes.
        shared_experts: Experts that every token passes.
        moe_intermediate: Inner width of a routed expert.
        shared_intermediate: Inner width of one shared expert.
        sliding_window: Tokens that a windowed layer looks back.
        sliding_layers: Layers with that window.
        linear_layers: Layers with linear attention in place of `attention`.
        linear_key_heads: Key heads of a linear layer.
        linear_value_heads: Value heads of a linear layer.
        linear_key_dim: Width of a linear key head.
        linear_value_dim: Width of a linear value head.
        linear_conv: Taps of a linear layer's convolution.
        index_heads: Heads of a sparse attention's indexer.
        index_dim: Width of an indexer's head; also what a token adds to its cache.
        gated_attention: The query projection also makes a gate of the same width.
        tied: The output projection is the embedding.
        mtp_layers: Layers of multi-token prediction that the checkpoint carries.
    """

    layers: int
    hidden: int
    vocab: int
    context_length: int
    heads: int
    attention: str = "gqa"
    kv_heads: int = 0
    head_dim: int = 0
    q_lora: int = 0
    kv_lora: int = 0
    nope_dim: int = 0
    rope_dim: int = 0
    v_dim: int = 0
    dense_layers: int = 0
    dense_intermediate: int = 0
    experts: int = 0
    experts_per_token: int = 0
    shared_experts: int = 0
    moe_intermediate: int = 0
    shared_intermediate: int = 0
    sliding_window: int = 0
    sliding_layers: int = 0
    linear_layers: int = 0
    linear_key_heads: int = 0
    linear_value_heads: int = 0
    linear_key_dim: int = 0
    linear_value_dim: int = 0
    linear_conv: int = 0
    index_heads: int = 0
    index_dim: int = 0
    gated_attention: bool = False
    tied: bool = False
    mtp_layers: int = 0

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if item.type == "int" and (type(value) is not int or not 0 <= value < _MOST):
                raise ShapeError(f"{item.name}={str(value)[:40]} makes no sense")
            if item.type == "bool" and type(value) is not bool:
                raise ShapeError(f"{item.name} must be true or false")
        if self.attention not in ("gqa", "mla"):
            raise ShapeError(f"attention={str(self.attention)[:40]!r} is neither gqa nor mla")
        wanted = ["layers", "hidden", "vocab", "context_length", "heads"]
        wanted += ["kv_heads", "head_dim"] if self.attention == "gqa" else ["kv_lora", "rope_dim", "v_dim"]
        wanted += ["moe_intermediate", "experts_per_token"] if self.experts else ["dense_intermediate"]
        wanted += ["dense_intermediate"] if self.dense_layers else []
        for name in wanted:
            if getattr(self, name) < 1:
                raise ShapeError(f"{name} is missing")
        if self.experts_per_token > self.experts > 0:
            raise ShapeError(f"experts_per_token={self.experts_per_token} of {self.experts} experts")
        if max(self.dense_layers, self.linear_layers, self.sliding_layers) > self.layers:
            raise ShapeError(f"more special layers than the {self.layers} there are")

    @property
    def moe_layers(self) -> int:
        """Layers with routed experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def parameters(self) -> int:
        """All parameters, without multi-token prediction."""
        return sum(self.groups().values())

    def groups(self) -> dict[str, int]:
        """Parameters of the whole model by what they are for.

        ``experts attention dense shared_experts router norms embedding head``; without multi-token prediction.
        """
        full = self.layers - self.linear_layers
        dense = self.dense_layers if self.experts else self.layers
        embedding = self.vocab * self.hidden
        return {
            "experts": self.moe_layers * self.expert_parameters_per_layer(),
            "attention": full * self.attention_parameters() + self.linear_layers * self.linear_parameters(),
            "dense": dense * 3 * self.hidden * self.dense_intermediate,
            "shared_experts": self.moe_layers * self.shared_experts * 3 * self.hidden * self._shared(),
            "router": self.moe_layers * self.experts * (self.hidden + 1),
            "norms": (2 * self.layers + 1) * self.hidden,
            "embedding": embedding,
            "head": 0 if self.tied else embedding,
        }

    def expert_parameters(self) -> int:
        """Parameters of one routed expert: gate, up and down."""
        return 3 * self.hidden * self.moe_intermediate

    def expert_parameters_per_layer(self) -> int:
        """Parameters of all routed experts of one layer."""
        return self.experts * self.expert_parameters()

    def attention_parameters(self) -> int:
        """Parameters of one layer's (not linear) attention with its indexer; its norms are too small to count."""
        if self.attention == "gqa":
            query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
            return self.hidden * ((3 if self.gated_attention else 2) * query + 2 * key)
        head = self.nope_dim + self.rope_dim
        query = (
            self.q_lora * (self.hidden + self.heads * head)
            if self.q_lora
            else self.hidden * self.heads * head
        )
        keys = self.hidden * (self.kv_lora + self.rope_dim)
        keys += self.kv_lora * self.heads * (self.nope_dim + self.v_dim)
        indexer = self.index_heads * (self.index_dim * (self.q_lora or self.hidden) + self.hidden)
        indexer += self.hidden * self.index_dim
        return query + keys + self.heads * self.v_dim * self.hidden + indexer

    def linear_parameters(self) -> int:
        """Parameters of one layer's linear attention."""
        keys = self.linear_key_heads * self.linear_key_dim
        values = self.linear_value_heads * self.linear_value_dim
        into = 2 * keys + 2 * values + 2 * self.linear_value_heads
        return self.hidden * into + (2 * keys + values) * self.linear_conv + values * self.hidden

    def kv_elements_per_token(self) -> int:
        """Elements that one token adds to the cache, over all layers that keep every token.

        Windowed layers keep `sliding_window` tokens at most and linear ones a fixed state, so both are left out.
        """
        kept = self.layers - self.linear_layers - self.sliding_layers
        return kept * self.kv_elements_per_layer()

    def kv_elements_per_layer(self) -> int:
        """Elements that one token adds to one layer's cache, indexer included."""
        if self.attention == "mla":
            return self.kv_lora + self.rope_dim + self.index_dim
        return 2 * self.kv_heads * self.head_dim

    def mtp_parameters(self) -> int:
        """Parameters of multi-token prediction: each is a layer with a projection from twice the width."""
        layer = self.attention_parameters() + 2 * self.hidden * self.hidden
        layer += self.expert_parameters_per_layer() + self.shared_experts * 3 * self.hidden * self._shared()
        return self.mtp_layers * (layer + self.experts * (self.hidden + 1))

    def _shared(self) -> int:
        return self.shared_intermediate or self.moe_intermediate


def weight_bytes(parameters: int, weight_format: str) -> int:
    """Bytes of that many parameters in a format.

    Raises:
        ShapeError: A format that is not in `BITS`.
    """
    if weight_format not in BITS:
        raise ShapeError(f"{weight_format!r} is no known format of weights")
    return int(parameters * BITS[weight_format] / 8)


def checkpoint_bytes(shape: ModelShape, formats: Mapping[str, str]) -> int | None:
    """Bytes of a model's weight files by its shape, prediction layers included; None without formats.

    Embeddings, norms and routers of a safetensors model stay in 16 bits, whatever the rest is stored in.
    """
    experts, other = formats.get("experts"), formats.get("other")
    if experts is None or other is None:
        return None
    groups = shape.groups()
    plain = "q4_k_m" if other == "q4_k_m" else "bf16"
    kept = sum(groups[name] for name in ("embedding", "head", "norms", "router"))
    rest = sum(groups[name] for name in ("attention", "dense", "shared_experts"))
    total = weight_bytes(groups["experts"], experts) + weight_bytes(rest, other) + weight_bytes(kept, plain)
    return total + (weight_bytes(shape.mtp_parameters(), experts) if plain == "bf16" else 0)


def shape_of_table(table: Mapping[str, Any]) -> ModelShape:
    """A shape as ``models.toml`` writes it: the attributes of `ModelShape` by name.

    Raises:
        ShapeError: A key is unknown, missing or makes no sense.
    """
    names = {item.name for item in dataclasses.fields(ModelShape)}
    if unknown := [str(key) for key in table if key not in names]:
        raise ShapeError(f"there is no dimension {unknown[0][:40]!r}")
    try:
        return ModelShape(**table)
    except TypeError as error:
        raise ShapeError(str(error).removeprefix("ModelShape.__init__() ")) from error
