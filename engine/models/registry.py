"""Which model file runs which architecture."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

import torch

from engine import cpu
from engine.batch import Batch
from engine.errors import CheckpointError
from engine.experts import MixtureOfExperts
from engine.pages import KvCache
from engine.weights.index import Checkpoint
from engine.weights.loader import Loader

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
        """Run a step; float32 logits ``[len(batch.logit_rows), vocab_size]``."""
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
    _check_quantization(checkpoint)
    module, name = ARCHITECTURES[architecture]
    model: Model = getattr(import_module(module), name)(checkpoint, loader, team)
    return model


def _check_quantization(checkpoint: Checkpoint) -> None:
    """Refuse storage that the loader would misread, before any tensor is looked at."""
    asked = checkpoint.config.get("quantization_config")
    if not asked:
        return
    method = asked.get("quant_method") if isinstance(asked, dict) else None
    if method == "fbgemm_fp8" or (method == "compressed-tensors" and _is_fp8_by_row(asked)):
        return
    if method != "fp8":
        raise CheckpointError(
            f"{checkpoint.path} is quantised with {str(method)[:80]}, which this engine does not run; "
            "take the model in FP8 with a scale for each row or 128x128 block, or in BF16"
        )
    if asked.get("weight_block_size") != [128, 128] or asked.get("fmt", "float8_e4m3fn") not in (
        "e4m3",
        "float8_e4m3fn",
    ):
        raise CheckpointError(
            f"{checkpoint.path} stores {asked.get('fmt', 'FP8')} with blocks of {asked.get('weight_block_size')}; "
            "only float8_e4m3fn with blocks of [128, 128] is supported: take such a model, or BF16"
        )


def _is_fp8_by_row(asked: dict[str, Any]) -> bool:
    """Whether every group of compressed-tensors holds float8 weights with one scale for each row."""
    groups = asked.get("config_groups")
    wanted = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}
    return (
        asked.get("format") == "float-quantized"
        and isinstance(groups, dict)
        and bool(groups)
        and all(
            isinstance(group, dict)
            and isinstance(group.get("weights"), dict)
            and wanted.items() <= group["weights"].items()
            for group in groups.values()
        )
    )
