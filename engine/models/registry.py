"""Which model file runs which architecture."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol

import torch

from engine import cpu
from engine.batch import Batch
from engine.errors import CheckpointError
from engine.experts import MixtureOfExperts
from engine.pages import KvCache
from engine.weights.index import Checkpoint
from engine.weights.loader import Loader
from engine.weights.quantization import check_quantization

ARCHITECTURES = {
    "LlamaForCausalLM": ("engine.models.llama", "Llama"),
    "MiniMaxM2ForCausalLM": ("engine.models.minimax_m2", "MiniMaxM2"),
    "MixtralForCausalLM": ("engine.models.mixtral", "Mixtral"),
    "Qwen3ForCausalLM": ("engine.models.qwen3", "Qwen3"),
    "Qwen3MoeForCausalLM": ("engine.models.qwen3_moe", "Qwen3Moe"),
}


class Model(Protocol):
    """What the runner needs of a model.

    Attributes:
        vocab_size: Token ids are below it.
        context_length: Tokens of one sequence at most.
        experts: The mixtures of experts, in layer order; empty for a dense model.
    """

    vocab_size: int
    context_length: int
    experts: list[MixtureOfExperts]

    def forward(self, batch: Batch, cache: KvCache) -> torch.Tensor:
        """Run a step; float32 logits ``[rows whose logits are wanted, vocab_size]``."""
        ...


def build_model(checkpoint: Checkpoint, loader: Loader, team: cpu.Team) -> Model:
    """Make the checkpoint's model; its matrices are loaded when ``loader`` runs.

    Raises:
        CheckpointError: The architecture or its storage is not supported, or tensors are missing or misshapen.
    """
    named = checkpoint.config.get("architectures")
    architecture = str(named[0]) if isinstance(named, list) and named else "none"
    if architecture not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        raise CheckpointError(
            f"{checkpoint.path} is a model of the architecture {architecture[:80]}, which this engine does not run "
            f"(it runs {known}); run it with --engine sglang or take another model"
        )
    check_quantization(checkpoint)
    module, name = ARCHITECTURES[architecture]
    model: Model = getattr(import_module(module), name)(checkpoint, loader, team)
    return model
