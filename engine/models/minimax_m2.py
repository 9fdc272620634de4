"""MiniMax-M2, M2.1, M2.5 and M2.7: every layer a mixture of experts, norms over all heads of q and k.

Source: configuration and modelling code of MiniMaxAI/MiniMax-M2 as released in transformers. Layers behind
``num_hidden_layers`` (multi-token prediction) are never asked for and so never read.
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


class MiniMaxM2Settings(Settings):
    """The keys of ``config.json`` that this model reads; the defaults are the released model's."""

    vocab_size: PositiveInt
    hidden_size: PositiveInt
    intermediate_size: PositiveInt
    num_hidden_layers: PositiveInt
    num_attention_heads: PositiveInt
    num_key_value_heads: PositiveInt
    head_dim: PositiveInt
    num_local_experts: PositiveInt
    num_experts_per_tok: PositiveInt
    max_position_embeddings: PositiveInt
    rms_norm_eps: PositiveFloat = 1e-6
    rope_theta: PositiveFloat = 5e6
    rotary_dim: PositiveInt | None = None
    partial_rotary_factor: PositiveFloat | None = None
    use_routing_bias: bool = True
    tie_word_embeddings: bool = False
    hidden_act: Literal["silu"] = "silu"
    scoring_func: Literal["sigmoid"] = "sigmoid"
    use_qk_norm: Literal[True] = True
    qk_norm_type: Literal["per_layer"] = "per_layer"
    shared_intermediate_size: Literal[0] = 0
    attn_type_list: tuple[Literal[1], ...] = ()
    rope_scaling: None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError("num_attention_heads must be a multiple of num_key_value_heads")
        if self.num_experts_per_tok > self.num_local_experts:
            raise ValueError("num_experts_per_tok must not exceed num_local_experts")
        if self.rotary % 2 or not 0 < self.rotary <= self.head_dim:
            raise ValueError(f"the rotary dimension {self.rotary} must be even and at most head_dim")
        return self

    @property
    def rotary(self) -> int:
        """How many values of a head are rotated, from either spelling."""
        if self.rotary_dim is not None:
            return self.rotary_dim
        return int(self.head_dim * (self.partial_rotary_factor or 1.0))


class MiniMaxM2(Decoder):
    """The whole model."""

    def __init__(self, checkpoint: Checkpoint, loader: Loader, team: cpu.Team) -> None:
        s = MiniMaxM2Settings.read(checkpoint)
        super().__init__(s, loader, team, Rope(s.rotary, s.rope_theta, interleaved=False), Block)


class Block:
    """One layer: attention, then the mixture of experts."""

    def __init__(self, s: MiniMaxM2Settings, at: str, loader: Loader, team: cpu.Team) -> None:
        self.shape = AttentionShape(s.num_attention_heads, s.num_key_value_heads, s.head_dim)
        hidden, eps = s.hidden_size, s.rms_norm_eps
        self.q = q = s.num_attention_heads * s.head_dim
        self.kv = kv = s.num_key_value_heads * s.head_dim
        attention, moe = at + "self_attn.", at + "block_sparse_moe."
        self.input_norm = RmsNorm(loader.vector(at + "input_layernorm.weight", hidden), eps)
        self.qkv = Linear(loader, team, [f"{attention}{n}_proj.weight" for n in "qkv"], [q, kv, kv], hidden)
        self.q_norm = RmsNorm(loader.vector(attention + "q_norm.weight", q), eps)
        self.k_norm = RmsNorm(loader.vector(attention + "k_norm.weight", kv), eps)
        self.output = Linear(loader, team, [attention + "o_proj.weight"], [hidden], q)
        self.post_norm = RmsNorm(loader.vector(at + "post_attention_layernorm.weight", hidden), eps)
        experts = Experts(
            loader,
            team,
            (
                (f"{moe}experts.{e}.w1.weight", f"{moe}experts.{e}.w3.weight", f"{moe}experts.{e}.w2.weight")
                for e in range(s.num_local_experts)
            ),
            hidden,
            s.intermediate_size,
        )
        bias = None
        if s.use_routing_bias:
            bias = loader.vector(moe + "e_score_correction_bias", s.num_local_experts)
        gate = Linear(loader, team, [moe + "gate.weight"], [s.num_local_experts], hidden, precise=True)
        routing = Routing(k=s.num_experts_per_tok, score="sigmoid", renorm=True)
        self.moe = MixtureOfExperts(gate, bias, routing, experts)

    def forward(self, x: Rows, rope: Rope, cache: torch.Tensor) -> None:
        """Add this layer's outputs to the residual stream ``x``."""
        qkv = self.qkv(self.input_norm(x))
        self.q_norm.inplace(qkv.columns(0, self.q))
        self.k_norm.inplace(qkv.columns(self.q, self.q + self.kv))
        self.output.add_to(x, attend(self.shape, rope, qkv, cache))
        self.moe.add_to(x, self.post_norm(x))
