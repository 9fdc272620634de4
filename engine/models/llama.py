"""Llama and models of its shape (SmolLM2): dense, grouped-query attention, full rotary embedding.

Source: LlamaForCausalLM of transformers; for GGUF files the ``llama`` graph of llama.cpp, which differs in the
order of the rows of q and k only (see `engine.weights.gguf`).
"""

from __future__ import annotations

from typing import Literal, Self

import torch
from pydantic import PositiveFloat, PositiveInt, model_validator

from engine import cpu
from engine.layers.linear import Linear
from engine.layers.norm import RmsNorm
from engine.layers.rope import Rope
from engine.models.decoder import Decoder
from engine.models.settings import Settings
from engine.plan import AttentionShape, Rows, attend, silu_product
from engine.weights.index import Checkpoint
from engine.weights.loader import Loader


class LlamaSettings(Settings):
    """The keys that this model reads from ``config.json`` or from GGUF metadata."""

    vocab_size: PositiveInt
    hidden_size: PositiveInt
    intermediate_size: PositiveInt
    num_hidden_layers: PositiveInt
    num_attention_heads: PositiveInt
    num_key_value_heads: PositiveInt | None = None
    head_dim: PositiveInt | None = None
    rotary_dim: PositiveInt | None = None
    max_position_embeddings: PositiveInt
    rms_norm_eps: PositiveFloat
    rope_theta: PositiveFloat = 10000.0
    rope_interleaved: bool = False
    tie_word_embeddings: bool = False
    hidden_act: Literal["silu"] = "silu"
    attention_bias: Literal[False] = False
    mlp_bias: Literal[False] = False
    rope_scaling: None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.num_attention_heads % self.kv_heads:
            raise ValueError("num_attention_heads must be a multiple of num_key_value_heads")
        if self.head_size % 2 or self.rotary_dim not in (None, self.head_size):
            raise ValueError(f"the rotary dimension must be the head's, {self.head_size}, and even")
        return self

    @property
    def kv_heads(self) -> int:
        """Key and value heads; as many as query heads if not given."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def head_size(self) -> int:
        """Values a head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads


class Llama(Decoder):
    """The whole model."""

    def __init__(self, checkpoint: Checkpoint, loader: Loader, team: cpu.Team) -> None:
        s = LlamaSettings.read(checkpoint)
        super().__init__(
            s, loader, team, Rope(s.head_size, s.rope_theta, interleaved=s.rope_interleaved), Block
        )


class Block:
    """One layer: attention, then the gated feed-forward network."""

    def __init__(self, s: LlamaSettings, at: str, loader: Loader, team: cpu.Team) -> None:
        self.shape = AttentionShape(s.num_attention_heads, s.kv_heads, s.head_size)
        hidden, inner = s.hidden_size, s.intermediate_size
        q, kv = s.num_attention_heads * s.head_size, s.kv_heads * s.head_size
        self.input_norm = RmsNorm(loader.vector(at + "input_layernorm.weight", hidden), s.rms_norm_eps)
        self.qkv = Linear(
            loader, team, [f"{at}self_attn.{n}_proj.weight" for n in "qkv"], [q, kv, kv], hidden
        )
        self.output = Linear(loader, team, [at + "self_attn.o_proj.weight"], [hidden], q)
        self.post_norm = RmsNorm(
            loader.vector(at + "post_attention_layernorm.weight", hidden), s.rms_norm_eps
        )
        self.gate_up = Linear(
            loader, team, [at + "mlp.gate_proj.weight", at + "mlp.up_proj.weight"], [inner, inner], hidden
        )
        self.down = Linear(loader, team, [at + "mlp.down_proj.weight"], [hidden], inner)

    def forward(self, x: Rows, rope: Rope, cache: torch.Tensor) -> None:
        """Add this layer's outputs to the residual stream ``x``."""
        qkv = self.qkv(self.input_norm(x))
        self.output.add_to(x, attend(self.shape, rope, qkv, cache))
        self.down.add_to(x, silu_product(self.gate_up(self.post_norm(x))))
