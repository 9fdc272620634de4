"""Small random Qwen3, Qwen3-MoE and Mixtral checkpoints, with transformers as the oracle of what they compute."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers

from tests.engine.conftest import Case, Recipe, Tensors, _interleave, _store, randomize, save_shards
from tests.engine.ggml_blocks import blocks_like

ROW_WEIGHTS = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False}
GROUP_WEIGHTS = {
    "num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True, "dynamic": False,
    "actorder": None,
}  # fmt: skip
QUANTIZATION: dict[str, dict[str, Any]] = {
    "fp8": {"quant_method": "fp8", "fmt": "float8_e4m3fn", "weight_block_size": [128, 128]},
    "fp8_rows": {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": ROW_WEIGHTS}},
        "ignore": ["lm_head"],
    },
    "fp8_rows_flat": {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0},
    "int4_g32": {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {
            "group_0": {"targets": ["Linear"], "weights": GROUP_WEIGHTS, "input_activations": None}
        },
        "ignore": ["lm_head", "re:.*mlp.gate$"],
    },
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False},
}
QUANTIZATION["int4_g32_experts"] = QUANTIZATION["int4_g32"] | {"ignore": ["lm_head", "re:.*self_attn.*"]}
QUANTIZATION["gptq_v2"] = QUANTIZATION["gptq"] | {"checkpoint_format": "gptq_v2"}
"""Stores of FP8 and int4 and what ``config.json`` says of them.

Flat means scales ``[rows]`` instead of ``[rows, 1]``.
"""

FAMILIES = {"qwen3": "Qwen3", "qwen3_moe": "Qwen3Moe", "mixtral": "Mixtral"}


def _settings(family: str, r: Recipe) -> dict[str, Any]:
    common = {
        "vocab_size": r.vocab,
        "hidden_size": r.hidden,
        "intermediate_size": r.intermediate,
        "num_hidden_layers": r.layers,
        "num_attention_heads": r.heads,
        "num_key_value_heads": r.kv_heads,
        "head_dim": r.head_dim,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-4,
        "rope_theta": 20000.0,
        "tie_word_embeddings": False,
    }
    chosen = {"num_experts_per_tok": r.top_k}
    if family == "qwen3_moe":
        own = {"num_experts": r.experts, "moe_intermediate_size": r.intermediate, "norm_topk_prob": True}
        return common | chosen | own | {"intermediate_size": 2 * r.intermediate} | r.config
    if family == "mixtral":
        return common | chosen | {"num_local_experts": r.experts, "sliding_window": None} | r.config
    return common | r.config


def _oracle(family: str, settings: dict[str, Any], seed: int) -> Any:
    config = getattr(transformers, FAMILIES[family] + "Config")(**settings)
    model = getattr(transformers, FAMILIES[family] + "ForCausalLM")
    extra = {} if family == "qwen3" else {"experts_implementation": "eager"}
    oracle = model._from_config(config, attn_implementation="eager", **extra).eval()
    randomize(oracle, seed)
    return oracle


def make_hub(folder: Path, family: str, recipe: Recipe) -> Case:
    """A checkpoint as the hub has it: a file for each expert's matrix."""
    r, settings = recipe, _settings(family, recipe)
    oracle = _oracle(family, settings, r.seed)
    parts = ("w1", "w3", "w2") if family == "mixtral" else ("gate_proj", "up_proj", "down_proj")
    moe = "block_sparse_moe" if family == "mixtral" else "mlp"
    hub: Tensors = {}
    for name, value in oracle.state_dict().items():
        named = name.replace(".mlp.", f".{moe}.")
        if name.endswith("experts.gate_up_proj"):
            for e in range(r.experts):
                for part, rows in (
                    (parts[0], slice(0, r.intermediate)),
                    (parts[1], slice(r.intermediate, None)),
                ):
                    _store(hub, named.replace("gate_up_proj", f"{e}.{part}.weight"), value[e, rows], r.store)
        elif name.endswith("experts.down_proj"):
            for e in range(r.experts):
                _store(hub, named.replace("down_proj", f"{e}.{parts[2]}.weight"), value[e], r.store)
        else:
            plain = name.endswith("mlp.gate.weight") and r.store != "gptq_v2"  # some quantise the router, too
            kept = plain or name.endswith(("norm.weight", "embed_tokens.weight", "lm_head.weight"))
            kept = kept or (r.store == "int4_g32_experts" and "self_attn" in name)
            _store(hub, named, value, "bf16" if kept and r.store in QUANTIZATION else r.store)
    config = settings | {"architectures": [FAMILIES[family] + "ForCausalLM"]}
    if r.store in QUANTIZATION:
        config["quantization_config"] = QUANTIZATION[r.store]
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_shards(hub, folder, r.shards, index=r.index)
    return Case(folder, oracle, config)


def make_gguf(
    path: Path,
    family: str,
    recipe: Recipe,
    kinds: dict[str, str],
    *,
    single: bool = False,
    part_tensors: int = 0,
) -> Case:
    """A GGUF file as llama.cpp writes it.

    Args:
        path: The file; parts get numbers in their names.
        family: A key of `FAMILIES`.
        recipe: Sizes.
        kinds: A tensor's type by its name's stem.
        single: Whether each expert has tensors of its own, as in older files; else they are stacked.
        part_tensors: Tensors of a part; 0 makes one file.
    """
    r, settings = recipe, _settings(family, recipe)
    oracle = _oracle(family, settings, r.seed)
    architecture = {"mixtral": "llama"}.get(family, family.replace("_", ""))
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=part_tensors)
    writer.add_block_count(r.layers)
    writer.add_context_length(512)
    writer.add_embedding_length(r.hidden)
    writer.add_feed_forward_length(settings["intermediate_size"])
    writer.add_head_count(r.heads)
    writer.add_head_count_kv(r.kv_heads)
    writer.add_key_length(r.head_dim)
    writer.add_value_length(r.head_dim)
    writer.add_rope_freq_base(20000.0)
    writer.add_layer_norm_rms_eps(1e-4)
    writer.add_token_list([f"t{i}" for i in range(r.vocab)])
    if family != "qwen3":
        writer.add_expert_count(r.experts)
        writer.add_expert_used_count(r.top_k)
    if family == "qwen3_moe":
        writer.add_expert_feed_forward_length(r.intermediate)
    if family == "mixtral":
        writer.add_rope_dimension_count(r.head_dim)

    models = {
        "qwen3": gguf.MODEL_ARCH.QWEN3,
        "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE,
        "mixtral": gguf.MODEL_ARCH.LLAMA,
    }
    names = gguf.get_tensor_name_map(models[family], r.layers)

    def experts(stem: str, part: str, value: torch.Tensor) -> None:
        if not single:
            _write(writer, f"{stem}ffn_{part}_exps", value, kinds)
            return
        for number, matrix in enumerate(value):
            _write(writer, f"{stem}ffn_{part}.{number}", matrix, kinds, f"ffn_{part}_exps")

    for name, value in oracle.state_dict().items():
        at = name.removesuffix("mlp.experts.gate_up_proj").removesuffix("mlp.experts.down_proj")
        if name.endswith("experts.gate_up_proj"):
            block = f"blk.{at.split('.')[2]}."
            experts(block, "gate", value[:, : r.intermediate])
            experts(block, "up", value[:, r.intermediate :])
        elif name.endswith("experts.down_proj"):
            experts(f"blk.{at.split('.')[2]}.", "down", value)
        else:
            stem = names.get_name(name.removesuffix(".weight"))
            stem = stem or f"blk.{at.split('.')[2]}.ffn_gate_inp"
            heads = {"q_proj": r.heads, "k_proj": r.kv_heads}.get(name.split(".")[-2])
            if heads and family == "mixtral":
                turned = _interleave(value, heads)
                _write(writer, stem, turned, kinds)
                value.copy_(_interleave(turned, heads, back=True))
            else:
                _write(writer, stem, value, kinds)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Case(path, oracle, {})


QUANTIZED = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")
"""Types that values are rounded to; of the others blocks are made up that are as large."""


def _write(
    writer: gguf.GGUFWriter, stem: str, value: torch.Tensor, kinds: dict[str, str], like: str | None = None
) -> None:
    """Put a tensor into the file, and what was stored back into the oracle's own tensor."""
    kept = value.ndim == 1 or stem.endswith("ffn_gate_inp")
    kind = "F32" if kept else kinds.get(like or stem.rsplit(".", maxsplit=1)[-1], kinds["other"])
    number = gguf.GGMLQuantizationType[kind]
    if kind in QUANTIZED:
        data = gguf.quants.quantize(np.ascontiguousarray(value.numpy()), number)
    else:
        data = blocks_like(value, kind)
    exact = np.array(gguf.quants.dequantize(data, number), dtype=np.float32)
    value.copy_(torch.from_numpy(exact).view(value.shape))
    writer.add_tensor(stem + ".weight", data, raw_dtype=number)
