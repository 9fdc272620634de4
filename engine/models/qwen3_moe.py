"""Qwen3 with a mixture of experts in every layer (Qwen3-30B-A3B, Qwen3-235B-A22B, Qwen3-Coder).

Source: Qwen3MoeForCausalLM of transformers; for GGUF files the ``qwen3moe`` graph of llama.cpp, which always
normalises the weights of the chosen experts.
"""

from __future__ import annotations

from typing import Literal, Self

import torch
from pydantic import PositiveInt, model_validator

from engine import cpu
from engine.experts import Experts, MixtureOfExperts
from engine.layers.linear import Linear
from engine.layers.norm import RmsNorm
from engine.layers.rope import Rope
from engine.models.decoder import Decoder
from engine.models.qwen3 import Attention, AttentionSettings
from engine.plan import Routing, Rows
from engine.weights.index import Checkpoint
from engine.weights.loader import Loader


class Qwen3MoeSettings(AttentionSettings):
    """The keys of ``config.json`` that this model reads."""

    moe_intermediate_size: PositiveInt
    num_experts: PositiveInt
    num_experts_per_tok: PositiveInt
    norm_topk_prob: bool = False
    decoder_sparse_step: Literal[1] = 1
    mlp_only_layers: tuple[()] = ()

    @model_validator(mode="after")
    def _experts_fit_together(self) -> Self:
        if self.num_experts_per_tok > self.num_experts:
            raise ValueError("num_experts_per_tok must not exceed num_experts")
        return self


class Qwen3Moe(Decoder):
    """The whole model."""

    def __init__(self, checkpoint: Checkpoint, loader: Loader, team: cpu.Team) -> None:
        s = Qwen3MoeSettings.read(checkpoint)
        super().__init__(s, loader, team, Rope(s.head_dim, s.rope_theta, interleaved=False), Block)


class Block:
    """One layer: attention, then the mixture of experts."""

    def __init__(self, s: Qwen3MoeSettings, at: str, loader: Loader, team: cpu.Team) -> None:
        hidden = s.hidden_size
        self.attention = Attention(s, at, loader, team)
        self.post_norm = RmsNorm(
            loader.vector(at + "post_attention_layernorm.weight", hidden), s.rms_norm_eps
        )
        each = (f"{at}mlp.experts.{e}." for e in range(s.num_experts))
        names = ((e + "gate_proj.weight", e + "up_proj.weight", e + "down_proj.weight") for e in each)
        experts = Experts(loader, team, names, hidden, s.moe_intermediate_size)
        gate = Linear(loader, team, [at + "mlp.gate.weight"], [s.num_experts], hidden, precise=True)
        routing = Routing(k=s.num_experts_per_tok, score="softmax", renorm=s.norm_topk_prob)
        self.moe = MixtureOfExperts(gate, None, routing, experts)

    def forward(self, x: Rows, rope: Rope, cache: torch.Tensor) -> None:
        """Add this layer's outputs to the residual stream ``x``."""
        self.attention.forward(x, rope, cache)
        self.moe.add_to(x, self.post_norm(x))
