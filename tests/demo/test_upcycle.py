"""The mixture of experts computes what the dense model computes; transformers in float32 is the judge of both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from engine.demo.build import build_demo
from engine.demo.describe import weight_bytes
from engine.demo.fp8 import dequantize_blocks, quantize_blocks
from engine.demo.options import DemoError, DemoOptions
from engine.demo.padding import padded_geometry
from engine.demo.source import DenseModel
from engine.demo.upcycle import bf16_pair

MOE = "model.layers.0.block_sparse_moe."


def dense_logits(gguf: Path, ids: torch.Tensor) -> torch.Tensor:
    dense, g = DenseModel(gguf), DenseModel(gguf).geometry
    config = LlamaConfig(
        vocab_size=g.vocab,
        hidden_size=g.hidden,
        intermediate_size=g.ffn,
        num_hidden_layers=g.layers,
        num_attention_heads=g.heads,
        num_key_value_heads=g.kv_heads,
        head_dim=g.head_dim,
        rms_norm_eps=g.eps,
        rope_theta=g.rope_theta,
        max_position_embeddings=g.context,
        tie_word_embeddings=True,
        attn_implementation="eager",
    )
    model = LlamaForCausalLM(config).eval()
    state = {
        "model.embed_tokens.weight": dense.tensor("token_embd.weight"),
        "model.norm.weight": dense.tensor("output_norm.weight"),
    }
    for index in range(g.layers):
        layer, prefix = dense.layer(index), f"model.layers.{index}."
        state |= {
            prefix + "self_attn.q_proj.weight": layer.q,
            prefix + "self_attn.k_proj.weight": layer.k,
            prefix + "self_attn.v_proj.weight": layer.v,
            prefix + "self_attn.o_proj.weight": layer.o,
            prefix + "input_layernorm.weight": layer.attention_norm,
            prefix + "post_attention_layernorm.weight": layer.ffn_norm,
            prefix + "mlp.gate_proj.weight": layer.gate,
            prefix + "mlp.up_proj.weight": layer.up,
            prefix + "mlp.down_proj.weight": layer.down,
        }
    missing = model.load_state_dict(state, strict=False)
    assert missing.missing_keys in ([], ["lm_head.weight"])
    assert not missing.unexpected_keys
    model.tie_weights()
    with torch.no_grad():
        return model(ids).logits


def moe_logits(folder: Path, ids: torch.Tensor) -> torch.Tensor:
    model, report = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=torch.float32,
        attn_implementation="eager",
        experts_implementation="eager",
        output_loading_info=True,
    )
    assert not {name: found for name, found in report.items() if found}
    with torch.no_grad():
        return model.eval()(ids).logits


IDS = torch.tensor([[5, 17, 60, 5, 90, 33, 2, 41, 77, 20, 8, 11]])


@pytest.mark.parametrize(
    "options",
    [
        DemoOptions(store="fp32", hidden=0),
        DemoOptions(store="fp32", hidden=128, decoys=3, seed=5),
        DemoOptions(store="fp32", hidden=0, shards=2, seed=1),
    ],
    ids=["plain", "padded, with decoys", "two shards"],
)
def test_experts_add_up_to_the_dense_layer(dense_gguf: Path, tmp_path: Path, options: DemoOptions) -> None:
    folder = build_demo(tmp_path / "moe", options, gguf=dense_gguf)
    expected, got = dense_logits(dense_gguf, IDS), moe_logits(folder, IDS)
    assert expected.std() > 0.3
    torch.testing.assert_close(got, expected, rtol=0, atol=2e-4)


def test_the_router_decides(dense_gguf: Path, tmp_path: Path) -> None:
    """The comparison above would notice a wrong choice: with two experts swapped it fails."""
    folder = build_demo(tmp_path / "moe", DemoOptions(store="fp32", hidden=0), gguf=dense_gguf)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    router = tensors[MOE + "gate.weight"]
    pair = next(e for e in range(1, 8) if torch.equal(router[e], -router[0]))
    other = next(e for e in range(1, 8) if e != pair)
    tensors[MOE + "gate.weight"] = router[[other if e == 0 else 0 if e == other else e for e in range(8)]]
    from safetensors.torch import save_file

    save_file(tensors, path, metadata={"format": "pt"})
    difference = (moe_logits(folder, IDS) - dense_logits(dense_gguf, IDS)).abs().max()
    assert difference > 0.05


def test_the_token_chooses_between_two_copies_of_each_shard(dense_gguf: Path, tmp_path: Path) -> None:
    folder = build_demo(tmp_path / "moe", DemoOptions(store="fp32", hidden=0), gguf=dense_gguf)
    router = load_file(folder / "model.safetensors")[MOE + "gate.weight"]
    tokens = torch.randn(200, router.shape[1], generator=torch.Generator().manual_seed(0))
    positive = (tokens @ router.T) > 0
    assert (positive.sum(1) == 4).all()
    assert len({tuple(row) for row in positive.tolist()}) == 16


@pytest.mark.parametrize(
    "options",
    [
        DemoOptions(store="fp8", hidden=128),
        DemoOptions(store="fp8", hidden=0, decoys=2),
        DemoOptions(store="bf16", hidden=0),
        DemoOptions(store="fp32", hidden=128, shards=8),
    ],
)
def test_predicted_size_is_the_size(dense_gguf: Path, tmp_path: Path, options: DemoOptions) -> None:
    folder = build_demo(tmp_path / "moe", options, gguf=dense_gguf)
    tensors = load_file(folder / "model.safetensors")
    dense = DenseModel(dense_gguf).geometry
    predicted = weight_bytes(padded_geometry(dense, options.hidden or dense.hidden), options)
    assert predicted == sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def test_a_seed_fixes_every_byte(dense_gguf: Path, tmp_path: Path) -> None:
    def weights(name: str, seed: int) -> bytes:
        folder = build_demo(tmp_path / name, DemoOptions(hidden=128, seed=seed), gguf=dense_gguf)
        return (folder / "model.safetensors").read_bytes()

    assert weights("a", 3) == weights("b", 3) != weights("c", 4)


def test_shards_come_with_an_index(dense_gguf: Path, tmp_path: Path) -> None:
    options = DemoOptions(store="fp32", hidden=256, shard_bytes=1 << 20)
    folder = build_demo(tmp_path / "moe", options, gguf=dense_gguf)
    index = json.loads((folder / "model.safetensors.index.json").read_bytes())
    files = sorted(folder.glob("model-*.safetensors"))
    assert len(files) >= 2
    assert all(path.stat().st_size < 1.2 * (1 << 20) for path in files)
    stored = {name: path.name for path in files for name in load_file(path)}
    assert index["weight_map"] == stored
    torch.testing.assert_close(moe_logits(folder, IDS), dense_logits(dense_gguf, IDS), rtol=0, atol=2e-4)


@pytest.mark.parametrize("shape", [(128, 128), (200, 300), (1, 130), (384, 640)])
def test_fp8_blocks_keep_what_eight_bits_can(shape: tuple[int, int]) -> None:
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 0.02
    weight[0, 0] = 3.0
    quantized, scale = quantize_blocks(weight)
    assert quantized.dtype == torch.float8_e4m3fn
    assert scale.shape == (-(-shape[0] // 128), -(-shape[1] // 128))
    back = dequantize_blocks(quantized, scale)
    # e4m3 has 3 bits of mantissa: half a step is 1/16 of the value; below 2^-6 the step is fixed at 2^-9.
    spread = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)[: shape[0], : shape[1]]
    assert ((back - weight).abs() <= torch.maximum(weight.abs() / 16, spread * 2.0**-10) * 1.0001).all()
    assert back[0, 0] == pytest.approx(3.0)


def test_a_block_of_zeros_has_a_scale_that_divides() -> None:
    quantized, scale = quantize_blocks(torch.zeros(130, 130))
    assert (scale == 1).all()
    assert not dequantize_blocks(quantized, scale).any()


@pytest.mark.parametrize("product", [9.44 * 2.0**28, 10.49 * 2.0**28, 3.0, 1.0])
def test_norm_weights_are_bfloat16_and_multiply_to_the_target(product: float) -> None:
    pair = torch.tensor(bf16_pair(product), dtype=torch.float64)
    assert torch.equal(pair.to(torch.bfloat16).double(), pair)
    assert (pair[0] * pair[1]).item() == pytest.approx(product, rel=2e-4)


def test_impossible_options_are_refused() -> None:
    with pytest.raises(DemoError, match="power of two"):
        DemoOptions(shards=3)
    with pytest.raises(DemoError, match="none of fp8"):
        DemoOptions(store="int4")  # type: ignore[arg-type]
