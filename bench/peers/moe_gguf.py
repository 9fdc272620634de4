"""Writes a MiniMax-M2 checkpoint as GGUF with Q8_0 linears, so that llama.cpp can run the demo at equal bits."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from safetensors import safe_open

LAYER_TENSORS = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "block_sparse_moe.gate.weight": "ffn_gate_inp.weight",
    "block_sparse_moe.e_score_correction_bias": "exp_probs_b.bias",
}
EXPERTS = {"w1": "ffn_gate_exps.weight", "w3": "ffn_up_exps.weight", "w2": "ffn_down_exps.weight"}


class Checkpoint:
    """Dequantised tensors of a safetensors checkpoint, one at a time."""

    def __init__(self, folder: Path) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        self._files = [safe_open(path, "pt") for path in sorted(folder.glob("*.safetensors"))]
        self._home = {name: file for file in self._files for name in file.keys()}  # noqa: SIM118

    def __getitem__(self, name: str) -> np.ndarray:
        value = self._home[name].get_tensor(name).float()
        scale_name = name + "_scale_inv"
        if scale_name in self._home:
            scale = self._home[scale_name].get_tensor(scale_name)
            rows, columns = value.shape
            value *= scale.repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :columns]
        return value.numpy()


def write(folder: Path, source_gguf: Path, out: Path) -> None:
    """Convert the checkpoint in ``folder``; the vocabulary comes from ``source_gguf``."""
    checkpoint = Checkpoint(folder)
    config = checkpoint.config
    writer = gguf.GGUFWriter(out, "minimax-m2")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_expert_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["rotary_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_expert_count(config["num_local_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    copy_vocabulary(source_gguf, writer)

    def add(name: str, value: np.ndarray) -> None:
        if value.ndim >= 2 and "ffn_gate_inp" not in name:
            writer.add_tensor(name, gguf.quantize(value, Type.Q8_0), raw_dtype=Type.Q8_0)
        else:
            writer.add_tensor(name, value.astype(np.float32))

    add("token_embd.weight", checkpoint["model.embed_tokens.weight"])
    add("output_norm.weight", checkpoint["model.norm.weight"])
    add("output.weight", checkpoint["lm_head.weight"])
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for source, name in LAYER_TENSORS.items():
            add(f"blk.{layer}.{name}", checkpoint[prefix + source])
        for source, name in EXPERTS.items():
            experts = [
                checkpoint[f"{prefix}block_sparse_moe.experts.{expert}.{source}.weight"]
                for expert in range(config["num_local_experts"])
            ]
            add(f"blk.{layer}.{name}", np.stack(experts))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def copy_vocabulary(source: Path, writer: gguf.GGUFWriter) -> None:
    """Copy every ``tokenizer.*`` key from one GGUF to another."""
    for key, field in gguf.GGUFReader(source).fields.items():
        if key.startswith("tokenizer."):
            element = field.types[1] if len(field.types) > 1 else None
            writer.add_key_value(key, field.contents(), field.types[0], sub_type=element)


if __name__ == "__main__":
    import sys

    torch.set_num_threads(1)
    write(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
