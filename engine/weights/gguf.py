"""GGUF checkpoints under the names that the model files use, which are those of the Hugging Face hub.

Names and keys: ``gguf-py/gguf/constants.py`` of llama.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.errors import CheckpointError
from engine.gguf_header import GgufHeader, read_gguf_header
from engine.weights.tensor import MappedFile, StoredTensor

_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate_inp": "mlp.gate",
}
_STACKED = {"ffn_gate_exps": "gate_proj", "ffn_up_exps": "up_proj", "ffn_down_exps": "down_proj"}
_SINGLE = {"ffn_gate": "gate_proj", "ffn_up": "up_proj", "ffn_down": "down_proj"}
"""Experts of older files, which have a tensor for each: ``blk.0.ffn_gate.3.weight``."""
_MIXTRAL = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")
_MOST_EXPERTS = 1 << 16
_MIXTRAL_MODEL = "MixtralForCausalLM"
_ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3moe": "Qwen3MoeForCausalLM",
}


def hub_name(name: str) -> str:
    """The hub's name of a GGUF tensor; a name that has none is kept."""
    if name in _TOP:
        return _TOP[name]
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
    if match and match[2] in _LAYER:
        return f"model.layers.{match[1]}.{_LAYER[match[2]]}.{match[3]}"
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(\d+)\.weight", name)
    if match and match[2] in _SINGLE:
        return f"model.layers.{match[1]}.mlp.experts.{match[3]}.{_SINGLE[match[2]]}.weight"
    return name


def _mixtral_name(name: str) -> str:
    """The hub's name of a tensor of Mixtral, which calls the experts and their matrices otherwise."""
    found = hub_name(name)
    found = re.sub(r"\.mlp\.(gate|experts)\.", r".block_sparse_moe.\1.", found)
    return re.sub(
        r"(\.experts\.\d+\.)(\w+)(\.weight)$",
        lambda match: match[1] + _MIXTRAL.get(match[2], match[2]) + match[3],
        found,
    )


def open_gguf(path: Path) -> tuple[dict[str, Any], dict[str, StoredTensor]]:
    """Map a GGUF file, or all parts of a model whose first part is given.

    Returns:
        The model's configuration in the hub's words, and the tensors under the hub's names.

    Raises:
        CheckpointError: A file is missing, cut short or damaged.
    """
    file, header = _open(path)
    parts = header.metadata.get("split.count", 0)
    tensors = _tensors(file, header)
    if isinstance(parts, int) and parts > 1:
        for part in _others(header, parts):
            more = _tensors(*_open(part))
            if twice := tensors.keys() & more.keys():
                raise CheckpointError(
                    f"{part} repeats {min(twice)}, which another part of the model holds: download it again"
                )
            tensors |= more
        promised = header.metadata.get("split.tensors.count", len(tensors))
        if promised != len(tensors):
            raise CheckpointError(
                f"{path} promises {promised} tensors in {parts} parts, but they hold {len(tensors)}: "
                "download them again"
            )
    config = gguf_config(header, tensors)
    name = _mixtral_name if config["architectures"] == [_MIXTRAL_MODEL] else hub_name
    named: dict[str, StoredTensor] = {}
    for stored in tensors.values():
        named |= {name(key): value for key, value in (_experts(stored) or {stored.name: stored}).items()}
    return config, named


def _open(path: Path) -> tuple[MappedFile, GgufHeader]:
    file = MappedFile(path)
    header = read_gguf_header(path)
    if header.needed_bytes > header.file_bytes:
        raise CheckpointError(
            f"{path} is cut short ({header.file_bytes} of {header.needed_bytes} bytes that its header "
            "promises): download it again"
        )
    return file, header


def _tensors(file: MappedFile, header: GgufHeader) -> dict[str, StoredTensor]:
    return {
        name: StoredTensor(name, file, row.type, row.shape, row.offset, row.offset + row.nbytes)
        for name, row in header.tensors.items()
    }


def _others(first: GgufHeader, parts: int) -> list[Path]:
    """The files of parts 2 and on, which lie beside the first and are named after it."""
    path = first.path
    match = _PART.fullmatch(path.name)
    if match is None or int(match[3]) != parts:
        raise CheckpointError(
            f"{path} is one of {parts} parts of a model, but is not named like one: give it its name "
            f"NAME-00001-of-{parts:05d}.gguf back, or join the parts with llama.cpp's `llama-gguf-split --merge`"
        )
    if first.metadata.get("split.no", 0) != 0 or int(match[2]) != 1:
        raise CheckpointError(
            f"{path} is part {match[2]} of a model: give the first one, {match[1]}-00001-of-{match[3]}.gguf"
        )
    return [path.with_name(f"{match[1]}-{number:05d}-of-{match[3]}.gguf") for number in range(2, parts + 1)]


def _experts(stacked: StoredTensor) -> dict[str, StoredTensor]:
    """The matrices of a tensor that stacks a layer's experts ``[experts, rows, columns]``, by their hub names.

    Each is a view of it.

    Empty for any other tensor, and for one whose bytes cannot be shared out evenly.
    """
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", stacked.name)
    if not match or match[2] not in _STACKED or len(stacked.shape) != 3:
        return {}
    count, size = stacked.shape[0], stacked.end - stacked.begin
    if not 0 < count <= _MOST_EXPERTS or size % count:
        return {}
    return {
        f"model.layers.{match[1]}.mlp.experts.{expert}.{_STACKED[match[2]]}.weight": StoredTensor(
            f"{stacked.name}[{expert}]",
            stacked.file,
            stacked.dtype,
            stacked.shape[1:],
            stacked.begin + size // count * expert,
            stacked.begin + size // count * (expert + 1),
        )
        for expert in range(count)
    }


def gguf_config(header: GgufHeader, tensors: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """The metadata in the words of a ``config.json``; absent keys stay absent.

    Args:
        header: Of the first part.
        tensors: All parts' tensors by their own names.
    """
    found = header.metadata
    architecture = header.architecture
    if not architecture:
        raise CheckpointError(f"{header.path} does not name its architecture: it is not a model")
    keys = {
        "num_hidden_layers": "block_count",
        "hidden_size": "embedding_length",
        "intermediate_size": "feed_forward_length",
        "num_attention_heads": "attention.head_count",
        "num_key_value_heads": "attention.head_count_kv",
        "head_dim": "attention.key_length",
        "max_position_embeddings": "context_length",
        "rms_norm_eps": "attention.layer_norm_rms_epsilon",
        "rope_theta": "rope.freq_base",
        "rotary_dim": "rope.dimension_count",
        "vocab_size": "vocab_size",
        "num_experts": "expert_count",
        "num_experts_per_tok": "expert_used_count",
        "moe_intermediate_size": "expert_feed_forward_length",
    }
    config = {
        ours: found[f"{architecture}.{key}"] for ours, key in keys.items() if f"{architecture}.{key}" in found
    }
    embedding = tensors.get("token_embd.weight")
    if embedding is not None and embedding.shape:
        config["vocab_size"] = embedding.shape[0]
    # A llama with experts is what the hub calls Mixtral.
    mixtral = architecture == "llama" and config.get("num_experts", 0) != 0
    if mixtral:
        config["num_local_experts"] = config["num_experts"]
    scaling = _rope_scaling(architecture, found)
    if scaling:
        config["rope_scaling"] = scaling
    return (
        {"rope_theta": 10000.0}
        | config
        | {  # llama.cpp's own where a file is silent
            "architectures": [
                _MIXTRAL_MODEL if mixtral else _ARCHITECTURES.get(architecture, f"GGUF {architecture}")
            ],
            "tie_word_embeddings": "output.weight" not in tensors,
            # llama.cpp permutes the rows of llama's q and k so that each rotated pair lies side by side.
            "rope_interleaved": architecture == "llama",
            "norm_topk_prob": True,  # what llama.cpp does for every mixture of experts that is run here
        }
    )


def _rope_scaling(architecture: str, found: Mapping[str, Any]) -> dict[str, Any] | None:
    """RoPE scaling asked for by the file: its kind, for the model file to accept or to refuse."""
    kind = found.get(f"{architecture}.rope.scaling.type", "none")
    return None if kind == "none" else {"rope_type": kind}
