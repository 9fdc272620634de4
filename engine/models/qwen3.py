"""Qwen3, dense: grouped-query attention with a norm over each head of q and k.

Source: Qwen3ForCausalLM of transformers; for GGUF files the ``qwen3`` graph of llama.cpp, which keeps the order of
the rows of q and k as the hub has it.
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


class AttentionSettings(Settings):
    """The keys that Qwen3 and its mixtures of experts have in common."""

    vocab_size: PositiveInt
    hidden_size: PositiveInt
    num_hidden_layers: PositiveInt
    num_attention_heads: PositiveInt
    num_key_value_heads: PositiveInt
    head_dim: PositiveInt = 128
    rotary_dim: PositiveInt | None = None
    max_position_embeddings: PositiveInt
    rms_norm_eps: PositiveFloat
    rope_theta: PositiveFloat = 10000.0
    tie_word_embeddings: bool = False
    hidden_act: Literal["silu"] = "silu"
    attention_bias: Literal[False] = False
    use_sliding_window: Literal[False] = False
    rope_scaling: None = None

    @model_validator(mode="after")
    def _heads_fit_together(self) -> Self:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError("num_attention_heads must be a multiple of num_key_value_heads")
        if self.head_dim % 2 or self.rotary_dim not in (None, self.head_dim):
            raise ValueError(f"the rotary dimension must be the head's, {self.head_dim}, and even")
        return self


class Qwen3Settings(AttentionSettings):
    """The keys that this model reads from ``config.json`` or from GGUF metadata."""

    intermediate_size: PositiveInt


class Qwen3(Decoder):
    """The whole model."""

    def __init__(self, checkpoint: Checkpoint, loader: Loader, team: cpu.Team) -> None:
        s = Qwen3Settings.read(checkpoint)
        super().__init__(s, loader, team, Rope(s.head_dim, s.rope_theta, interleaved=False), Block)


class Attention:
    """Attention with its input norm."""

    def __init__(self, s: AttentionSettings, at: str, loader: Loader, team: cpu.Team) -> None:
        self.shape = AttentionShape(s.num_attention_heads, s.num_key_value_heads, s.head_dim)
        hidden, eps = s.hidden_size, s.rms_norm_eps
        self.q = q = s.num_attention_heads * s.head_dim
        self.kv = kv = s.num_key_value_heads * s.head_dim
        names = [f"{at}self_attn.{n}_proj.weight" for n in "qkv"]
        self.input_norm = RmsNorm(loader.vector(at + "input_layernorm.weight", hidden), eps)
        self.qkv = Linear(loader, team, names, [q, kv, kv], hidden)
        self.q_norm = RmsNorm(loader.vector(at + "self_attn.q_norm.weight", s.head_dim), eps)
        self.k_norm = RmsNorm(loader.vector(at + "self_attn.k_norm.weight", s.head_dim), eps)
        self.output = Linear(loader, team, [at + "self_attn.o_proj.weight"], [hidden], q)

    def forward(self, x: Rows, rope: Rope, cache: torch.Tensor) -> None:
        """Add attention's output to the residual stream ``x``."""
        qkv = self.qkv(self.input_norm(x))
        self.q_norm.inplace(qkv.columns(0, self.q))
        self.k_norm.inplace(qkv.columns(self.q, self.q + self.kv))
        self.output.add_to(x, attend(self.shape, rope, qkv, cache))


class Block:
    """One layer: attention, then the gated feed-forward network."""

    def __init__(self, s: Qwen3Settings, at: str, loader: Loader, team: cpu.Team) -> None:
        hidden, inner = s.hidden_size, s.intermediate_size
        self.attention = Attention(s, at, loader, team)
        self.post_norm = RmsNorm(
            loader.vector(at + "post_attention_layernorm.weight", hidden), s.rms_norm_eps
        )
        self.gate_up = Linear(
            loader, team, [at + "mlp.gate_proj.weight", at + "mlp.up_proj.weight"], [inner, inner], hidden
        )
        self.down = Linear(loader, team, [at + "mlp.down_proj.weight"], [hidden], inner)

    def forward(self, x: Rows, rope: Rope, cache: torch.Tensor) -> None:
        """Add this layer's outputs to the residual stream ``x``."""
        self.attention.forward(x, rope, cache)
        self.down.add_to(x, silu_product(self.gate_up(self.post_norm(x))))
