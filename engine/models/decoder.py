"""What all families have in common: embedding, blocks on a residual stream, norm, output projection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import torch

from engine import cpu
from engine.batch import Batch
from engine.experts import MixtureOfExperts
from engine.layers.linear import Embedding, Linear
from engine.layers.norm import RmsNorm
from engine.layers.rope import Rope
from engine.pages import KvCache
from engine.plan import Plan, Rows, pick
from engine.weights.loader import Loader


class DecoderSettings(Protocol):
    """The settings that this part of a model needs."""

    @property
    def vocab_size(self) -> int:
        """Tokens in the vocabulary."""

    @property
    def hidden_size(self) -> int:
        """Width of the residual stream."""

    @property
    def num_hidden_layers(self) -> int:
        """Blocks."""

    @property
    def max_position_embeddings(self) -> int:
        """Tokens of a sequence at most."""

    @property
    def rms_norm_eps(self) -> float:
        """Of the last norm."""

    @property
    def tie_word_embeddings(self) -> bool:
        """Whether the output projection is the embedding."""


class Block(Protocol):
    """One layer of a model."""

    def forward(self, x: Rows, rope: Rope, cache: torch.Tensor) -> None:
        """Add the layer's outputs to the residual stream ``x``."""


S = TypeVar("S", bound=DecoderSettings)


class Decoder:
    """A whole model, but for its blocks.

    Attributes:
        vocab_size: Token ids are below it.
        context_length: Tokens of one sequence at most.
        experts: The mixtures of experts, in layer order; empty for a dense model.
    """

    def __init__(
        self,
        s: S,
        loader: Loader,
        team: cpu.Team,
        rope: Rope,
        block: Callable[[S, str, Loader, cpu.Team], Block],
    ) -> None:
        """Check the tensors and put off loading them.

        Args:
            s: The family's settings.
            loader: The checkpoint.
            team: The threads that compute.
            rope: Rotation of queries and keys.
            block: Makes a layer from the settings and the beginning of its tensors' names.
        """
        self.vocab_size, self.context_length = s.vocab_size, s.max_position_embeddings
        embed, head = "model.embed_tokens.weight", "lm_head.weight"
        self.team, self.rope = team, rope
        self.embed = Embedding(loader, embed, s.vocab_size, s.hidden_size)
        self.blocks: Sequence[Block] = [
            block(s, f"model.layers.{layer}.", loader, team) for layer in range(s.num_hidden_layers)
        ]
        self.norm = RmsNorm(loader.vector("model.norm.weight", s.hidden_size), s.rms_norm_eps)
        self.head = Linear(
            loader, team, [embed if s.tie_word_embeddings else head], [s.vocab_size], s.hidden_size
        )
        self.experts: list[MixtureOfExperts] = []
        for each in self.blocks:
            moe = getattr(each, "moe", None)
            if isinstance(moe, MixtureOfExperts):
                self.experts.append(moe)
        self._plan: tuple[KvCache, Plan] | None = None

    def forward(self, batch: Batch, cache: KvCache) -> torch.Tensor:
        """Run a step; float32 logits ``[rows whose logits are wanted, vocab_size]``."""
        if self._plan is None or self._plan[0] is not cache:
            self._plan = cache, self.plan(cache)
        x = self.embed(batch.tokens)
        logits = torch.empty(batch.step.picked, self.vocab_size)
        self._plan[1].run(batch.step, x, logits)
        return logits

    def plan(self, cache: KvCache) -> Plan:
        """The step on a cache: the embedded tokens and room for the logits are given to it."""
        plan = Plan(self.team)
        x = plan.given(self.embed.matrix.columns)
        logits = plan.given(self.vocab_size, picked=True)
        for block, layer in zip(self.blocks, cache.layers, strict=True):
            block.forward(x, self.rope, layer)
        self.head(self.norm(pick(x)), out=logits)
        return plan
