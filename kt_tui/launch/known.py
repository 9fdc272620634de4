"""Shapes of models that can be planned for before they are on disk, in the words of their ``config.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.budget import ModelShape, WeightBytes, config_weight_bytes, model_shape

KNOWN_CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "demo": {
        "architectures": ["MiniMaxM2ForCausalLM"],
        "model_type": "minimax_m2",
        "num_hidden_layers": 30,
        "hidden_size": 640,
        "intermediate_size": 384,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "num_local_experts": 8,
        "num_experts_per_tok": 4,
        "vocab_size": 49152,
        "max_position_embeddings": 8192,
        "use_qk_norm": True,
        "use_routing_bias": True,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    },
}


def known_inputs(name: str) -> tuple[ModelShape, WeightBytes] | None:
    """Shape and weights of a known model, or None."""
    config = KNOWN_CONFIGS.get(name)
    return (model_shape(config), config_weight_bytes(config)) if config else None
