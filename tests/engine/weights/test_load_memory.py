"""Loading takes what the plan says and a small rest: nothing is in memory twice, not even for a moment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from engine.budget import read_budget_inputs
from tests.engine.ggml_blocks import random_blocks

LAYERS, EXPERTS, HIDDEN, INNER, VOCAB, HEADS, WIDTH = 5, 20, 1024, 512, 4096, 8, 128
REST = 60 << 20
"""Bytes beside the plan: the mapped pages of the matrices in work (8 MB at most), scratch of conversions and, for
those, the library that knows the types. A second copy of the weights would be 130 MB and more."""

SCRIPT = """
import sys
from pathlib import Path
import torch
from engine import cpu
from engine.models.registry import build_model
from engine.progress import ignore
from engine.weights.index import open_checkpoint
from engine.weights.loader import Loader

def kilobytes(key):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key))

torch.zeros(1)
checkpoint = open_checkpoint(Path(sys.argv[1]))
loader = Loader(checkpoint, torch.device("cpu"))
model = build_model(checkpoint, loader, cpu.Team(1))
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before = kilobytes("VmRSS")
loader.run(ignore)
print((kilobytes("VmHWM") - before) * 1024, (kilobytes("VmRSS") - before) * 1024)
"""


def write(path: Path, kind: str) -> None:
    """A Qwen3-MoE with one type for all matrices."""
    writer = gguf.GGUFWriter(path, "qwen3moe")
    writer.add_block_count(LAYERS)
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(2)
    writer.add_key_length(WIDTH)
    writer.add_value_length(WIDTH)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(4)
    writer.add_expert_feed_forward_length(INNER)
    rng = np.random.default_rng(0)
    some = {columns: random_blocks(kind, rng, 128, columns) for columns in (HIDDEN, INNER)}

    def put(name: str, *shape: int) -> None:
        rows = int(np.prod(shape[:-1]))
        data = np.tile(some[shape[-1]], (rows // 128, 1)).reshape(*shape[:-1], -1)
        writer.add_tensor(f"{name}.weight", data, raw_dtype=gguf.GGMLQuantizationType[kind])

    def ones(name: str, *shape: int) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(shape, np.float32))

    put("token_embd", VOCAB, HIDDEN)
    put("output", VOCAB, HIDDEN)
    ones("output_norm", HIDDEN)
    for layer in range(LAYERS):
        at = f"blk.{layer}."
        put(at + "attn_q", HEADS * WIDTH, HIDDEN)
        put(at + "attn_k", 2 * WIDTH, HIDDEN)
        put(at + "attn_v", 2 * WIDTH, HIDDEN)
        put(at + "attn_output", HIDDEN, HEADS * WIDTH)
        for name, *shape in (
            ("attn_norm", HIDDEN),
            ("ffn_norm", HIDDEN),
            ("attn_q_norm", WIDTH),
            ("attn_k_norm", WIDTH),
        ):
            ones(at + str(name), *map(int, shape))
        ones(at + "ffn_gate_inp", EXPERTS, HIDDEN)
        put(at + "ffn_gate_exps", EXPERTS, INNER, HIDDEN)
        put(at + "ffn_up_exps", EXPERTS, INNER, HIDDEN)
        put(at + "ffn_down_exps", EXPERTS, HIDDEN, INNER)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is read from /proc")
@pytest.mark.parametrize("kind", ["Q8_0", "IQ4_XS", "IQ3_XXS"])
def test_loading_takes_the_planned_memory_and_little_else(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "model.gguf"
    write(path, kind)
    _, weights = read_budget_inputs(path)
    planned = weights.total - weights.embedding  # which stays in the file
    assert planned > 2 * REST
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    peak, after = map(int, done.stdout.split())
    assert 0.95 * planned < after <= peak
    assert peak < planned + REST, f"{peak - planned} bytes more than planned"
