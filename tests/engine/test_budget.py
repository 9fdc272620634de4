"""Bytes of a configuration, against the files, the engine's own rules and independent sums."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import budget
from engine.budget import ModelShape, WeightBytes
from engine.errors import CheckpointError

SHAPE = ModelShape("X", 30, 640, 12, 4, 64, 384, 49152, 8192, 8, 4)

CONFIG: dict[str, Any] = {
    "architectures": ["MiniMaxM2ForCausalLM"],
    "num_hidden_layers": 3,
    "hidden_size": 256,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "num_local_experts": 16,
    "num_experts_per_tok": 4,
    "vocab_size": 2176,
    "max_position_embeddings": 4096,
    "use_qk_norm": True,
    "use_routing_bias": True,
}


def write_checkpoint(
    folder: Path, tensors: dict[str, tuple[str, list[int], int]], config: dict[str, Any]
) -> None:
    """A checkpoint by its headers: name -> dtype, shape, bytes."""
    header, offset = {}, 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    folder.mkdir(exist_ok=True)
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(offset))
    (folder / "config.json").write_text(json.dumps(config))


def test_tensors_are_counted_by_what_they_are_for(tmp_path: Path) -> None:
    write_checkpoint(
        tmp_path,
        {
            "model.embed_tokens.weight": ("BF16", [10, 4], 80),
            "lm_head.weight": ("BF16", [10, 4], 80),
            "model.norm.weight": ("BF16", [4], 8),
            "model.layers.0.block_sparse_moe.gate.weight": ("F32", [2, 4], 32),
            "model.layers.0.block_sparse_moe.e_score_correction_bias": ("F32", [2], 8),
            "model.layers.0.block_sparse_moe.experts.0.w1.weight": ("F8_E4M3", [3, 4], 12),
            "model.layers.0.block_sparse_moe.experts.0.w1.weight_scale_inv": ("F32", [1, 1], 4),
            "model.layers.0.mlp.shared_experts.up_proj.weight": ("BF16", [3, 4], 24),
        },
        CONFIG,
    )
    shape, weights = budget.read_budget_inputs(tmp_path)
    floats = {
        "experts": budget.Floats(12, 3, 16),
        "head": budget.Floats(40, 10, 80),
        "other": budget.Floats(12, 3, 24),
    }
    assert weights == WeightBytes(experts=16, embedding=80, head=80, other=8 + 32 + 8 + 24, floats=floats)
    assert weights.stored("keep") == weights
    # A byte a number and a factor a row; routers, norms and the mapped embedding stay.
    assert weights.stored("int8") == WeightBytes(
        experts=12 + 12, embedding=80, head=40 + 40, other=8 + 32 + 8 + 12 + 12
    )
    assert weights.stored("int4_g32").head == 40 * 18 // 32
    assert (shape.experts, shape.experts_per_token, shape.intermediate) == (16, 4, 128)


def test_a_gguf_is_counted_to_the_byte(smollm2_gguf: Path) -> None:
    from engine.gguf_header import read_gguf_header

    shape, weights = budget.read_budget_inputs(smollm2_gguf)
    header = read_gguf_header(smollm2_gguf)
    assert weights.total == sum(tensor.nbytes for tensor in header.tensors.values())
    assert (weights.experts, weights.head) == (0, 0)
    assert (shape.layers, shape.kv_heads, shape.head_dim, shape.context_length) == (30, 3, 64, 8192)


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, {"a": ("BF16", [10, 4], 80)}, CONFIG)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(CheckpointError, match="cut short"):
        budget.read_budget_inputs(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": None}, "lacks hidden_size"),
        ({"vocab_size": "many"}, "vocab_size=many"),
        ({"num_hidden_layers": -3}, "num_hidden_layers=-3"),
        ({"num_attention_heads": True}, "num_attention_heads=True"),
        ({"num_experts_per_tok": 1 << 40}, "makes no sense"),
    ],
)
def test_a_senseless_configuration_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        budget.model_shape(CONFIG | change)


def test_key_value_bytes() -> None:
    # 30 layers, keys and values, 4 heads of 64 float32 numbers
    assert budget.kv_bytes_per_token(SHAPE) == 30 * 2 * 4 * 64 * 4
    assert budget.kv_bytes(SHAPE, 65) == 128 * 61_440


@pytest.mark.parametrize("tokens", [64, 100, 1024])
def test_the_cache_takes_the_bytes_that_were_planned(tokens: int) -> None:
    import torch

    from engine.pages import KvCache

    shape = ModelShape("X", 3, 256, 4, 2, 64, 128, 2176, 4096)
    cache = KvCache(3, 2, 64, budget.whole_pages(tokens), torch.device("cpu"))
    assert cache.nbytes == budget.kv_bytes(shape, tokens)


@given(context=st.integers(1, 200_000), free=st.integers(-(1 << 30), 1 << 36))
def test_a_cache_that_nobody_chose_fits_its_share_and_one_context(context: int, free: int) -> None:
    shape = replace(SHAPE, context_length=context)
    tokens = budget.default_total_tokens(shape, free)
    assert tokens % budget.PAGE_TOKENS == 0
    assert tokens <= budget.whole_pages(context)
    assert tokens == 0 or budget.kv_bytes(shape, tokens) <= free * budget.KV_MEMORY_SHARE
    page_more = budget.kv_bytes(shape, tokens + budget.PAGE_TOKENS)
    assert tokens == budget.whole_pages(context) or page_more > max(0, free) * budget.KV_MEMORY_SHARE


def test_the_architectures_are_those_that_the_engine_runs() -> None:
    from engine.models import registry

    assert set(budget.ARCHITECTURES) == set(registry.ARCHITECTURES)


def test_without_a_known_memory_the_cache_holds_one_context() -> None:
    assert budget.default_total_tokens(SHAPE, None) == 8192


def test_a_larger_chunk_takes_more_scratch() -> None:
    small, large = (budget.activation_bytes(SHAPE, chunk, 16) for chunk in (128, 1024))
    assert large > small > 16 * 49152 * 4


def test_parts_add_up() -> None:
    weights = WeightBytes(experts=1000, embedding=200, head=200, other=50)
    plan = budget.engine_budget(SHAPE, weights, max_total_tokens=64, chunk=16, max_running_requests=1)
    assert set(plan.parts) == {"weights_experts", "weights_other", "kv_cache", "activations", "runtime"}
    assert (plan.weights_experts, plan.weights_other) == (1000, 450)
    assert plan.total == sum(plan.parts.values())


def test_bytes_of_a_token_count_the_chosen_experts_only() -> None:
    assert budget.bytes_read_per_token(SHAPE, WeightBytes(1000, 200, 300, 50)) == 500 + 300 + 50
    assert budget.bytes_read_per_token(SHAPE, WeightBytes(1000, 200, 0, 50)) == 500 + 200 + 50


def test_other_architectures_need_their_files() -> None:
    with pytest.raises(CheckpointError, match="cannot be worked out"):
        budget.config_weight_bytes(CONFIG | {"architectures": ["LlamaForCausalLM"]})


def test_planning_needs_no_torch() -> None:
    code = (
        "import sys, engine.budget as b; b.read_budget_inputs.__call__; import engine.weights.index; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


@pytest.mark.slow
def test_the_recorded_demo_is_the_built_demo(demo_model: Path) -> None:
    from kt_tui.launch.known import known_inputs

    assert known_inputs("demo") == budget.read_budget_inputs(demo_model)
