"""Shapes from a ``config.json`` in any family's spelling, and from GGUF metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kt_tui.catalog.shape import ModelShape, ShapeError

_MOST = 1 << 31


def shape_of_config(config: Mapping[str, Any]) -> ModelShape:
    """The shape that a ``config.json`` tells; of a model with vision, its text part's.

    Raises:
        ShapeError: A dimension is missing or makes no sense; names its key.
    """
    inner = config.get("text_config")
    source: Mapping[str, Any] = {**config, **inner} if isinstance(inner, Mapping) else config
    heads, hidden = _number(source, "num_attention_heads"), _number(source, "hidden_size")
    layers = _number(source, "num_hidden_layers")
    mla = bool(_number(source, "kv_lora_rank", default=0))
    experts = _number(source, "n_routed_experts", "num_local_experts", "num_experts", default=0)
    shared = _number(source, "n_shared_experts", "num_shared_experts", default=0) if experts else 0
    shared_width = _number(source, "shared_expert_intermediate_size", default=0) if experts else 0
    kinds = source.get("layer_types")
    kinds = kinds[:layers] if isinstance(kinds, list) else []
    interval = _number(source, "full_attention_interval", default=0)
    linear = kinds.count("linear_attention") or (layers - layers // interval if interval else 0)
    window = _number(source, "sliding_window", default=0) if source.get("use_sliding_window", True) else 0
    return ModelShape(
        layers=layers,
        hidden=hidden,
        vocab=_number(source, "vocab_size"),
        context_length=_number(source, "max_position_embeddings"),
        attention="mla" if mla else "gqa",
        heads=heads,
        kv_heads=0 if mla else _number(source, "num_key_value_heads", default=heads),
        head_dim=0 if mla else _number(source, "head_dim", default=hidden // heads),
        q_lora=_number(source, "q_lora_rank", default=0),
        kv_lora=_number(source, "kv_lora_rank", default=0),
        nope_dim=_number(source, "qk_nope_head_dim", default=0),
        rope_dim=_number(source, "qk_rope_head_dim", default=0) if mla else 0,
        v_dim=_number(source, "v_head_dim", default=0) if mla else 0,
        dense_layers=_dense_layers(source, layers) if experts else 0,
        dense_intermediate=_number(source, "intermediate_size", default=0),
        experts=experts,
        experts_per_token=_number(source, "num_experts_per_tok", "experts_per_token") if experts else 0,
        shared_experts=shared or (1 if shared_width else 0),
        moe_intermediate=_number(source, "moe_intermediate_size", "intermediate_size") if experts else 0,
        shared_intermediate=shared_width,
        sliding_window=window,
        sliding_layers=(kinds.count("sliding_attention") if kinds else layers) if window else 0,
        linear_layers=linear,
        linear_key_heads=_number(source, "linear_num_key_heads", default=0),
        linear_value_heads=_number(source, "linear_num_value_heads", default=0),
        linear_key_dim=_number(source, "linear_key_head_dim", default=0),
        linear_value_dim=_number(source, "linear_value_head_dim", default=0),
        linear_conv=_number(source, "linear_conv_kernel_dim", default=0),
        index_heads=_number(source, "index_n_heads", default=0),
        index_dim=_number(source, "index_head_dim", default=0),
        gated_attention=bool(linear) or source.get("attn_output_gate") is True,
        tied=source.get("tie_word_embeddings") is True,
        mtp_layers=_number(source, "num_nextn_predict_layers", default=0),
    )


def _dense_layers(source: Mapping[str, Any], layers: int) -> int:
    if isinstance(frequency := source.get("moe_layer_freq"), list):
        return sum(not every for every in frequency[:layers])
    return _number(source, "first_k_dense_replace", default=0)


def shape_of_gguf(metadata: Mapping[str, Any], *, tied: bool = False) -> ModelShape:
    """The shape that GGUF metadata tells.

    Args:
        metadata: Key -> value of the (first) file's header.
        tied: Whether its table of tensors lacks ``output.weight``.

    Raises:
        ShapeError: A dimension is missing or makes no sense; names its key.
    """
    name = str(metadata.get("general.architecture", ""))

    def number(key: str, default: int | None = None) -> int:
        return _number(metadata, f"{name}.{key}", default=default)

    hidden, heads, layers = number("embedding_length"), number("attention.head_count"), number("block_count")
    tokens = metadata.get("tokenizer.ggml.tokens")
    vocab = number("vocab_size", len(tokens) if isinstance(tokens, list) else None)
    kv_lora, rope = number("attention.kv_lora_rank", 0), number("rope.dimension_count", 0)
    experts, expert_width = number("expert_count", 0), number("expert_feed_forward_length", 0)
    key, value = number("attention.key_length", hidden // heads), number("attention.value_length", 0)
    # Files made for absorbed attention keep the true widths of a head in keys of their own.
    mla_key = number("attention.key_length_mla", key)
    return ModelShape(
        layers=layers,
        hidden=hidden,
        vocab=vocab,
        context_length=number("context_length"),
        attention="mla" if kv_lora else "gqa",
        heads=heads,
        kv_heads=0 if kv_lora else number("attention.head_count_kv", heads),
        head_dim=0 if kv_lora else key,
        q_lora=number("attention.q_lora_rank", 0),
        kv_lora=kv_lora,
        nope_dim=max(0, mla_key - rope) if kv_lora else 0,
        rope_dim=rope if kv_lora else 0,
        v_dim=number("attention.value_length_mla", value) if kv_lora else 0,
        dense_layers=number("leading_dense_block_count", 0) if experts else 0,
        dense_intermediate=number("feed_forward_length", 0),
        experts=experts,
        experts_per_token=number("expert_used_count") if experts else 0,
        shared_experts=number("expert_shared_count", 0),
        moe_intermediate=(expert_width or number("feed_forward_length")) if experts else 0,
        tied=tied,
    )


def _number(source: Mapping[str, Any], *keys: str, default: int | None = None) -> int:
    for key in keys:
        value = source.get(key)
        if value is None:
            continue
        # Some keys say 0 for "has none"; where a dimension is needed, 0 makes no sense.
        if type(value) is not int or not (0 if default is not None else 1) <= value < _MOST:
            raise ShapeError(f"{key}={str(value)[:40]} makes no sense")
        return value
    if default is None:
        raise ShapeError(f"{keys[0]} is missing")
    return default
