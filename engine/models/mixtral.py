"""Mixtral 8x7B and 8x22B: llama's attention, and a mixture of experts in every layer.

Source: MixtralForCausalLM of transformers; for GGUF files the ``llama`` graph of llama.cpp with experts, which differs
in the order of the rows of q and k (see `engine.weights.gguf`).
"""

from __future__ import annotations

from typing import Literal, Self

import torch
from pydantic import PositiveFloat, PositiveInt, model_validator

from engine import cpu
from engine.experts import Experts, MixtureOfExperts
from engine.layers.linear import Linear
from engine.layers.norm import RmsNorm
from engine.layers.rope import Rope
from engine.models.decoder import Decoder
from engine.models.settings import Settings
from engine.plan import AttentionShape, Routing, Rows, attend
from engine.weights.index import Checkpoint
from engine.weights.loader import Loader


class MixtralSettings(Settings):
    """The keys of ``config.json`` that this model reads; the defaults are the released model's."""

    vocab_size: PositiveInt
    hidden_size: PositiveInt
    intermediate_size: PositiveInt
    num_hidden_layers: PositiveInt
    num_attention_heads: PositiveInt
    num_key_value_heads: PositiveInt
    head_dim: PositiveInt | None = None
    num_local_experts: PositiveInt
    num_experts_per_tok: PositiveInt
    max_position_embeddings: PositiveInt
    rms_norm_eps: PositiveFloat = 1e-5
    rope_theta: PositiveFloat = 1e6
    rope_interleaved: bool = False
    rotary_dim: PositiveInt | None = None
    tie_word_embeddings: bool = False
    hidden_act: Literal["silu"] = "silu"
    sliding_window: None = None
    rope_scaling: None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError("num_attention_heads must be a multiple of num_key_value_heads")
        if self.num_experts_per_tok > self.num_local_experts:
            raise ValueError("num_experts_per_tok must not exceed num_local_experts")
        if self.head_size < 1 or self.head_size % 2:
            raise ValueError(f"the heads must have an even size, not {self.head_size}")
        if self.rotary_dim not in (None, self.head_size):
            raise ValueError(f"the rotary dimension must be the head's, {self.head_size}")
        return self

    @property
    def head_size(self) -> int:
        """Values a head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads


class Mixtral(Decoder):
    """The whole model."""

    def __init__(self, checkpoint: Checkpoint, loader: Loader, team: cpu.Team) -> None:
        s = MixtralSettings.read(checkpoint)
        rope = Rope(s.head_size, s.rope_theta, interleaved=s.rope_interleaved)
        super().__init__(s, loader, team, rope, Block)


class Block:
    """One layer: attention, then the mixture of experts."""

    def __init__(self, s: MixtralSettings, at: str, loader: Loader, team: cpu.Team) -> None:
        self.shape = AttentionShape(s.num_attention_heads, s.num_key_value_heads, s.head_size)
        hidden, eps, moe = s.hidden_size, s.rms_norm_eps, at + "block_sparse_moe."
        q, kv = s.num_attention_heads * s.head_size, s.num_key_value_heads * s.head_size
        names = [f"{at}self_attn.{n}_proj.weight" for n in "qkv"]
        self.input_norm = RmsNorm(loader.vector(at + "input_layernorm.weight", hidden), eps)
        self.qkv = Linear(loader, team, names, [q, kv, kv], hidden)
        self.output = Linear(loader, team, [at + "self_attn.o_proj.weight"], [hidden], q)
        self.post_norm = RmsNorm(loader.vector(at + "post_attention_layernorm.weight", hidden), eps)
        each = (f"{moe}experts.{e}." for e in range(s.num_local_experts))
        experts = Experts(
            loader,
            team,
            ((e + "w1.weight", e + "w3.weight", e + "w2.weight") for e in each),
            hidden,
            s.intermediate_size,
        )
        gate = Linear(loader, team, [moe + "gate.weight"], [s.num_local_experts], hidden, precise=True)
        routing = Routing(k=s.num_experts_per_tok, score="softmax", renorm=True)
        self.moe = MixtureOfExperts(gate, None, routing, experts)

    def forward(self, x: Rows, rope: Rope, cache: torch.Tensor) -> None:
        """Add this layer's outputs to the residual stream ``x``."""
        qkv = self.qkv(self.input_norm(x))
        self.output.add_to(x, attend(self.shape, rope, qkv, cache))
        self.moe.add_to(x, self.post_norm(x))
