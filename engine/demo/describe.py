"""The JSON files of the checkpoint, and its size before it is made."""

from __future__ import annotations

from typing import Any

from engine.demo.fp8 import BLOCK
from engine.demo.options import DemoOptions
from engine.demo.source import Geometry
from engine.demo.upcycle import expert_count, scaled_eps


def model_config(geometry: Geometry, options: DemoOptions) -> dict[str, Any]:
    """``config.json`` in the keys of the published MiniMax-M2 checkpoints."""
    width = geometry.ffn // options.shards
    config: dict[str, Any] = {
        "architectures": ["MiniMaxM2ForCausalLM"],
        "model_type": "minimax_m2",
        "intermediate_size": width,
        "num_local_experts": expert_count(options),
        "num_experts_per_tok": options.shards,
        "scoring_func": "sigmoid",
        "use_routing_bias": True,
        "use_qk_norm": True,
        "qk_norm_type": "per_layer",
        "rotary_dim": geometry.head_dim,
        "shared_intermediate_size": 0,
        "mlp_intermediate_size": width,
        "attn_type_list": [1] * geometry.layers,
        "router_aux_loss_coef": 0.001,
        "router_jitter_noise": 0.0,
        "output_router_logits": False,
        "use_mtp": False,
        "num_mtp_modules": 0,
        "mtp_transformer_layers": 1,
        "vocab_size": geometry.vocab,
        "hidden_size": geometry.hidden,
        "num_hidden_layers": geometry.layers,
        "num_attention_heads": geometry.heads,
        "num_key_value_heads": geometry.kv_heads,
        "head_dim": geometry.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": geometry.context,
        "rms_norm_eps": scaled_eps(geometry),
        "rope_theta": geometry.rope_theta,
        "bos_token_id": geometry.bos,
        "eos_token_id": geometry.eos,
        "pad_token_id": geometry.eos,
        "tie_word_embeddings": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "use_cache": True,
        "torch_dtype": "float32" if options.store == "fp32" else "bfloat16",
    }
    if options.store == "fp8":
        config["quantization_config"] = {
            "activation_scheme": "dynamic",
            "fmt": "float8_e4m3fn",
            "quant_method": "fp8",
            "weight_block_size": [BLOCK, BLOCK],
            "modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"],
        }
    return config


def generation_config(geometry: Geometry) -> dict[str, Any]:
    """``generation_config.json``."""
    return {
        "bos_token_id": geometry.bos,
        "eos_token_id": geometry.eos,
        "pad_token_id": geometry.eos,
        "do_sample": False,
    }


def weight_bytes(geometry: Geometry, options: DemoOptions) -> int:
    """Bytes of all tensors of the checkpoint, worked out from its shapes."""
    query, key = geometry.heads * geometry.head_dim, geometry.kv_heads * geometry.head_dim
    hidden, width, experts = geometry.hidden, geometry.ffn // options.shards, expert_count(options)
    attention = [(query, hidden), (key, hidden), (key, hidden), (hidden, query)]
    expert = [(width, hidden), (width, hidden), (hidden, width)]
    linear = sum(_linear_bytes(rows, columns, options) for rows, columns in attention + expert * experts)
    plain_item = 4 if options.store == "fp32" else 2
    plain_layer = 2 * hidden + query + key
    exact_layer = experts * hidden + experts
    outside = 2 * geometry.vocab * hidden + hidden
    return (outside + geometry.layers * plain_layer) * plain_item + geometry.layers * (
        linear + exact_layer * 4
    )


def _linear_bytes(rows: int, columns: int, options: DemoOptions) -> int:
    if options.store == "fp8":
        return rows * columns + -(-rows // BLOCK) * -(-columns // BLOCK) * 4
    return rows * columns * (4 if options.store == "fp32" else 2)
