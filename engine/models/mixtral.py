"""Mixtral 8x7B and 8x22B: llama's attention, and a mixture of experts in every layer.

Source: MixtralForCausalLM of transformers; for GGUF files the ``llama`` graph of llama.cpp with experts, which differs
in the order of the rows of q and k (see `engine.weights.gguf`).
"""

from __future__ import annotations

from typing import Literal, Self

import torch
from pydantic import PositiveFloat, PositiveInt, model_validator

from engine import _csrc, cpu, ops
from engine.batch import Batch
from engine.experts import Experts, MixtureOfExperts, Routing
from engine.layers.linear import Embedding, Linear
from engine.layers.norm import RmsNorm
from engine.layers.rope import Rope
from engine.models.settings import Settings
from engine.pages import KvCache
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


class Mixtral:
    """The whole model."""

    def __init__(self, checkpoint: Checkpoint, loader: Loader, team: cpu.Team) -> None:
        s = MixtralSettings.read(checkpoint)
        self.vocab_size, self.context_length = s.vocab_size, s.max_position_embeddings
        embed, head = "model.embed_tokens.weight", "lm_head.weight"
        self.embed = Embedding(loader, embed, s.vocab_size, s.hidden_size)
        self.rope = Rope(s.head_size, s.rope_theta, interleaved=s.rope_interleaved, device=loader.device)
        self.blocks = [
            Block(s, f"model.layers.{layer}.", loader, team) for layer in range(s.num_hidden_layers)
        ]
        self.norm = RmsNorm(team, loader.vector("model.norm.weight", s.hidden_size), s.rms_norm_eps)
        self.head = Linear(
            loader, team, [embed if s.tie_word_embeddings else head], [s.vocab_size], s.hidden_size
        )
        self.experts = [block.moe for block in self.blocks]

    def forward(self, batch: Batch, cache: KvCache) -> torch.Tensor:
        """Run a step; float32 logits ``[len(batch.logit_rows), vocab_size]``."""
        x = self.embed(batch.tokens)
        step = self.rope.step(batch)
        for block, layer in zip(self.blocks, cache.layers, strict=True):
            block.forward(x, step, layer)
        return self.head(self.norm(x[batch.logit_rows]))


class Block:
    """One layer: attention, then the mixture of experts."""

    def __init__(self, s: MixtralSettings, at: str, loader: Loader, team: cpu.Team) -> None:
        self.team = team
        self.shape = ops.AttentionShape(s.num_attention_heads, s.num_key_value_heads, s.head_size)
        hidden, eps, moe = s.hidden_size, s.rms_norm_eps, at + "block_sparse_moe."
        q, kv = s.num_attention_heads * s.head_size, s.num_key_value_heads * s.head_size
        names = [f"{at}self_attn.{n}_proj.weight" for n in "qkv"]
        self.input_norm = RmsNorm(team, loader.vector(at + "input_layernorm.weight", hidden), eps)
        self.qkv = Linear(loader, team, names, [q, kv, kv], hidden)
        self.output = Linear(loader, team, [at + "self_attn.o_proj.weight"], [hidden], q)
        self.post_norm = RmsNorm(team, loader.vector(at + "post_attention_layernorm.weight", hidden), eps)
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
        self.moe = MixtureOfExperts(team, gate, None, routing, experts)

    def forward(self, x: torch.Tensor, step: _csrc.Step, cache: torch.Tensor) -> None:
        """Add this layer's outputs to the residual stream ``x`` ``[rows, hidden]``."""
        qkv = self.qkv(self.input_norm(x))
        self.output.add_to(x, ops.attend(self.team, step, self.shape, qkv, cache))
        self.moe.add_to(x, self.post_norm(x))
