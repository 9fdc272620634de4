from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.gguf_header import read_gguf_header
from kt_tui.catalog.known import known_models
from kt_tui.catalog.shape import ShapeError
from kt_tui.catalog.shape_sources import shape_of_config, shape_of_gguf
from kt_tui.paths import Paths

SHAPES = {model.name: model.shape for model in known_models(Paths(*[Path("/nonexistent")] * 4))[0]}
V3 = {
    "num_hidden_layers": 61, "hidden_size": 7168, "vocab_size": 129280, "max_position_embeddings": 163840,
    "num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "first_k_dense_replace": 3,
    "moe_layer_freq": 1, "intermediate_size": 18432, "n_routed_experts": 256, "num_experts_per_tok": 8,
    "n_shared_experts": 1, "moe_intermediate_size": 2048, "num_nextn_predict_layers": 1,
}  # fmt: skip
NEXT = {
    "num_hidden_layers": 48, "hidden_size": 2048, "vocab_size": 151936, "max_position_embeddings": 262144,
    "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "num_experts": 512,
    "num_experts_per_tok": 10, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
    "full_attention_interval": 4, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
    "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
    "intermediate_size": 5120,
}  # fmt: skip
OSS = {
    "num_hidden_layers": 24, "hidden_size": 2880, "vocab_size": 201088, "max_position_embeddings": 131072,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "num_local_experts": 32,
    "experts_per_token": 4, "intermediate_size": 2880, "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "name"), [(V3, "DeepSeek-R1-0528"), (NEXT, "Qwen3-Next-80B-A3B"), (OSS, "gpt-oss-20b")]
)
@pytest.mark.parametrize("nested", [False, True])
def test_every_spelling_gives_the_shape_of_the_catalogue(
    config: dict[str, Any], name: str, nested: bool
) -> None:
    found, known = shape_of_config({"text_config": config} if nested else config), SHAPES[name]
    assert known is not None
    assert (found.parameters, found.kv_elements_per_token()) == (
        known.parameters,
        known.kv_elements_per_token(),
    )
    assert found.mtp_parameters() == known.mtp_parameters()


@pytest.mark.parametrize("absorbed", [False, True])
def test_gguf_metadata_gives_the_same_shape(absorbed: bool) -> None:
    a = "deepseek2."
    keys: dict[str, Any] = {
        "block_count": 61, "embedding_length": 7168, "vocab_size": 129280, "context_length": 163840,
        "attention.head_count": 128, "attention.head_count_kv": 1 if absorbed else 128,
        "attention.q_lora_rank": 1536, "attention.kv_lora_rank": 512, "rope.dimension_count": 64,
        "attention.key_length": 576 if absorbed else 192, "attention.value_length": 512 if absorbed else 128,
        "leading_dense_block_count": 3, "feed_forward_length": 18432, "expert_count": 256,
        "expert_used_count": 8, "expert_shared_count": 1, "expert_feed_forward_length": 2048,
    }  # fmt: skip
    if absorbed:
        keys |= {"attention.key_length_mla": 192, "attention.value_length_mla": 128}
    found = shape_of_gguf({"general.architecture": "deepseek2", **{a + k: v for k, v in keys.items()}})
    known = SHAPES["DeepSeek-R1-GGUF"]
    assert known is not None
    assert found.groups() == known.groups()


def test_a_real_gguf_file(smollm2_gguf: Path) -> None:
    header = read_gguf_header(smollm2_gguf)
    found = shape_of_gguf(header.metadata, tied="output.weight" not in header.tensors)
    elements = 0
    for tensor in header.tensors.values():
        count = 1
        for width in tensor.shape:
            count *= width
        elements += count
    assert found.parameters == elements


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"hidden_size": 0}, "hidden_size=0 makes no sense"),
        ({"num_attention_heads": -4}, "num_attention_heads=-4 makes no sense"),
        ({"vocab_size": "many"}, "vocab_size=many makes no sense"),
        ({"num_experts_per_tok": 300}, "experts_per_token=300 of 256"),
        ({"first_k_dense_replace": 62}, "more special layers"),
    ],
)
def test_impossible_values_are_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        shape_of_config(V3 | change)


ODD = [
    None,
    True,
    -1,
    0,
    1,
    1 << 31,
    1 << 80,
    1.5,
    float("nan"),
    "",
    "7",
    [],
    [1, 0],
    {},
    {"hidden_size": []},
]


@pytest.mark.parametrize("key", sorted({*V3, *NEXT, "layer_types", "text_config", "sliding_window"}))
def test_any_configuration_gives_a_shape_or_a_reason(key: str) -> None:
    reasons = []
    for value in ODD:
        try:
            shape_of_config({**(NEXT if key in NEXT else V3), key: value})
        except ShapeError as error:
            reasons.append(str(error))
    assert all(reasons)
    assert key in ("layer_types", "text_config", "moe_layer_freq") or reasons
