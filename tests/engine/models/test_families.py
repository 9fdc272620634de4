import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.config import EngineConfig
from engine.errors import CheckpointError
from engine.runner import Row, Runner
from tests.engine.conftest import Case, Recipe
from tests.engine.models.families import FAMILIES, QUANTIZATION, ROW_WEIGHTS, make_gguf, make_hub


def prompt(length: int, seed: int = 0) -> list[int]:
    return torch.randint(0, 300, (length,), generator=torch.Generator().manual_seed(length + seed)).tolist()


def last_logits(runner: Any, ids: list[int]) -> torch.Tensor:
    sequence = runner.open_sequence()
    (logits,) = runner.step([Row(sequence, ids, want_logits=True)])
    runner.close_sequence(sequence)
    return logits


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Case]:
    made: dict[str, Case] = {}

    def make(family: str, **recipe: Any) -> Case:
        key = repr((family, sorted(recipe.items())))
        if key not in made:
            made[key] = make_hub(tmp_path_factory.mktemp(family) / "model", family, Recipe(**recipe))
        return made[key]

    return make


@pytest.mark.parametrize("length", [1, 17, 130])
@pytest.mark.parametrize("store", ["fp8", "fp8_rows", "fp8_rows_flat", "bf16", "f32"])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_agree_with_the_oracle(hub, bound, family, store, length):
    case = hub(family, store=store, seed=3)
    ids = prompt(length)
    expected = case.logits(ids)[-1]
    error = (last_logits(case.load(), ids) - expected).abs().max()
    assert error <= bound(expected, bf16_weights=store != "f32")


ODD = {"hidden": 160, "intermediate": 72, "heads": 6, "kv_heads": 2, "head_dim": 48, "layers": 3}


@pytest.mark.parametrize("sizes", [ODD | {"experts": 5, "top_k": 1}, ODD | {"experts": 7, "top_k": 7}])
@pytest.mark.parametrize("family", FAMILIES)
def test_odd_sizes_agree_with_the_oracle(hub, bound, family, sizes):
    case = hub(family, store="f32", seed=8, **sizes)
    ids = prompt(33)
    expected = case.logits(ids)[-1]
    error = (last_logits(case.load(), ids) - expected).abs().max()
    assert error <= bound(expected, layers=3, bf16_weights=False)


@pytest.mark.parametrize("family", FAMILIES)
def test_sixteen_greedy_tokens_agree_with_the_oracle(hub, bound, family):
    case = hub(family, store="f32", seed=11)
    ids = prompt(17, seed=5)
    runner = case.load()
    sequence = runner.open_sequence()
    (logits,) = runner.step([Row(sequence, ids, want_logits=True)])
    decided = 0
    for token, oracle in case.greedy(ids, 16):
        error = bound(oracle, bf16_weights=False)
        assert (logits - oracle).abs().max() <= error
        if oracle.topk(2).values.diff().abs() > 2 * error:
            assert int(logits.argmax()) == token
            decided += 1
        (logits,) = runner.step([Row(sequence, [token], want_logits=True)])
    assert decided >= 14


def test_the_weights_of_the_experts_are_normalised_only_if_asked_for(hub, bound):
    case = hub("qwen3_moe", store="f32", seed=4, config={"norm_topk_prob": False})
    other = hub("qwen3_moe", store="f32", seed=4)
    ids = prompt(17)
    expected = case.logits(ids)[-1]
    assert (last_logits(case.load(), ids) - expected).abs().max() <= bound(expected, bf16_weights=False)
    wrong = (last_logits(other.load(), ids) - expected).abs().max()
    assert wrong > 10 * bound(expected, bf16_weights=False)


KINDS = [
    {"other": "F32"},
    {"other": "BF16"},
    {"other": "F16"},
    {"other": "Q8_0"},
    {"other": "Q4_0"},
    {"other": "Q4_1", "token_embd": "Q8_0", "attn_v": "Q8_0", "output": "F16"},
]


@pytest.mark.parametrize("kinds", KINDS, ids=lambda kinds: kinds["other"])
@pytest.mark.parametrize("family", ["qwen3", "qwen3_moe"])
def test_gguf_logits_agree_with_the_oracle(tmp_path, bound, family, kinds):
    case = make_gguf(tmp_path / "model.gguf", family, Recipe(seed=6), kinds)
    ids = prompt(17)
    expected = case.logits(ids)[-1]
    error = (last_logits(case.load(), ids) - expected).abs().max()
    assert error <= bound(expected, bf16_weights=kinds["other"] == "BF16", integers=kinds["other"][0] == "Q")


K_KINDS = [
    {"other": "Q4_K"},
    {"other": "Q5_K"},
    {"other": "Q6_K"},
    # As the usual mixtures have it; a matrix of its own format stands alone.
    {"other": "Q4_K", "attn_v": "Q6_K", "token_embd": "Q4_K", "output": "Q6_K", "attn_output": "Q5_K"},
]


@pytest.mark.parametrize("length", [1, 17, 130])
@pytest.mark.parametrize("kinds", K_KINDS, ids=lambda kinds: "-".join(kinds.values()))
@pytest.mark.parametrize("family", ["qwen3", "qwen3_moe"])
def test_gguf_in_blocks_of_256_agrees_with_the_oracle(tmp_path, bound, family, kinds, length):
    sizes = {"hidden": 256, "intermediate": 512, "heads": 8, "head_dim": 32}
    case = make_gguf(tmp_path / "model.gguf", family, Recipe(seed=length, **sizes), kinds)
    ids = prompt(length)
    expected = case.logits(ids)[-1]
    error = (last_logits(case.load(), ids) - expected).abs().max()
    assert error <= bound(expected, bf16_weights=False, integers=True, width=256)


CONVERTED = {
    "Q5_0": 0, "IQ4_NL": 0, "Q3_K": 0, "IQ3_S": 0, "IQ1_S": 0, "IQ1_M": 0, "TQ1_0": 0, "TQ2_0": 0, "MXFP4": 0,
    "IQ4_XS": 2**-12, "IQ2_XXS": 2**-12, "IQ3_XXS": 2**-12, "Q5_1": 2**-7, "Q2_K": 2**-7, "IQ2_XS": 2**-7,
    "IQ2_S": 2**-7,
}  # fmt: skip
"""Types that no kernel multiplies with, and by how much of themselves the weights may change at loading."""


@pytest.mark.parametrize("kind", CONVERTED)
@pytest.mark.parametrize("family", ["qwen3", "qwen3_moe"])
def test_gguf_in_converted_types_agrees_with_the_oracle(tmp_path, bound, family, kind):
    sizes = {"hidden": 256, "intermediate": 512, "heads": 8, "head_dim": 32, "experts": 4}
    case = make_gguf(tmp_path / "model.gguf", family, Recipe(seed=5, **sizes), {"other": kind})
    ids = prompt(17)
    expected = case.logits(ids)[-1]
    error = (last_logits(case.load(), ids) - expected).abs().max()
    allowed = bound(expected, bf16_weights=False, integers=True, width=256)
    assert error <= allowed * max(1.0, CONVERTED[kind] / 2**-15)


MIXED = [
    # The usual mixtures, of which each matrix keeps its numbers.
    ({"other": "Q4_K", "ffn_down_exps": "Q6_K", "attn_v": "Q6_K", "output": "Q6_K"}, 0),
    ({"other": "Q5_K", "ffn_down_exps": "Q6_K", "attn_v": "Q6_K", "token_embd": "Q6_K"}, 0),
    (
        {"other": "Q3_K", "ffn_down_exps": "Q5_K", "attn_v": "Q5_K", "attn_output": "Q5_K", "output": "Q6_K"},
        0,
    ),
    ({"other": "Q8_0", "ffn_down_exps": "Q4_1"}, 0),
    ({"other": "Q4_K", "ffn_up_exps": "Q5_K", "ffn_down_exps": "F16"}, 0),
    ({"other": "Q4_0", "ffn_up_exps": "Q5_0", "ffn_down_exps": "IQ4_NL"}, 0),
    # Gate and up share a format, which neither can be turned into exactly.
    ({"other": "Q4_K", "ffn_up_exps": "Q6_K"}, 2**-7),
]


@pytest.mark.parametrize(
    ("kinds", "change"), MIXED, ids=lambda value: "-".join(value.values()) if isinstance(value, dict) else ""
)
def test_gguf_of_mixed_types_agrees_with_the_oracle(tmp_path, bound, kinds, change):
    sizes = {"hidden": 256, "intermediate": 512, "heads": 8, "head_dim": 32, "experts": 4}
    case = make_gguf(tmp_path / "model.gguf", "qwen3_moe", Recipe(seed=7, **sizes), kinds)
    ids = prompt(17)
    expected = case.logits(ids)[-1]
    error = (last_logits(case.load(), ids) - expected).abs().max()
    allowed = bound(expected, bf16_weights=False, integers=True, width=256)
    assert error <= allowed * max(1.0, change / 2**-15)


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("kinds", [{"other": "Q8_0"}, {"other": "Q5_0", "ffn_down_exps": "Q8_0"}], ids=str)
def test_gguf_of_mixtral_agrees_with_the_oracle(tmp_path, bound, kinds, single):
    case = make_gguf(tmp_path / "model.gguf", "mixtral", Recipe(seed=2), kinds, single=single)
    ids = prompt(17)
    expected = case.logits(ids)[-1]
    error = (last_logits(case.load(), ids) - expected).abs().max()
    assert error <= bound(expected, bf16_weights=False, integers=True)


def split(folder: Path) -> Case:
    """A model in four parts or so; the path is that of the first."""
    case = make_gguf(folder / "model.gguf", "qwen3_moe", Recipe(seed=9), {"other": "Q8_0"}, part_tensors=7)
    parts = sorted(folder.glob("model-*.gguf"))
    assert len(parts) > 3
    return Case(parts[0], case.oracle, {})


def test_all_parts_of_a_split_gguf_are_read(tmp_path, bound):
    case = split(tmp_path)
    ids = prompt(17)
    expected = case.logits(ids)[-1]
    error = (last_logits(case.load(), ids) - expected).abs().max()
    assert error <= bound(expected, bf16_weights=False, integers=True)


def test_parts_of_a_split_gguf_that_do_not_fit_are_refused(tmp_path):
    case = split(tmp_path)
    second, last = sorted(tmp_path.glob("model-*.gguf"))[1::2][:2]
    with pytest.raises(
        CheckpointError, match=f"is part 00002 of a model: give the first one, {case.path.name}"
    ):
        Runner.load(EngineConfig(second, cpu_threads=1))
    whole = last.read_bytes()
    last.write_bytes(whole[:-1000])
    with pytest.raises(CheckpointError, match=f"{last.name} is cut short"):
        case.load()
    last.write_bytes(second.read_bytes())
    with pytest.raises(CheckpointError, match=f"{last.name} repeats "):
        case.load()
    last.unlink()
    with pytest.raises(CheckpointError, match=f"{last.name} is missing"):
        case.load()
    last.write_bytes(whole)
    renamed = case.path.rename(tmp_path / "model.gguf")
    with pytest.raises(CheckpointError, match="but is not named like one: give it its name"):
        Runner.load(EngineConfig(renamed, cpu_threads=1))


@pytest.mark.parametrize("columns", [2, 5])
def test_scales_for_each_row_must_be_one_a_row(tmp_path, columns):
    case = make_hub(tmp_path / "model", "qwen3", Recipe(store="fp8_rows", layers=1))
    file, name = case.path / "model.safetensors", "model.layers.0.mlp.down_proj.weight_scale"
    tensors = load_file(file)
    tensors[name] = tensors[name].repeat(1, columns)
    save_file(tensors, file)
    with pytest.raises(CheckpointError, match=rf"{name} has the shape \[192, {columns}\]"):
        case.load()


@pytest.mark.parametrize(
    "change",
    [{"num_bits": 4}, {"type": "int"}, {"strategy": "tensor"}, {"strategy": "block"}, {"symmetric": False}],
)
def test_other_compressed_tensors_are_refused(tmp_path, change):
    case = make_hub(tmp_path / "model", "qwen3", Recipe(store="fp8_rows", layers=1))
    asked = QUANTIZATION["fp8_rows"] | {"config_groups": {"group_0": {"weights": ROW_WEIGHTS | change}}}
    (case.path / "config.json").write_text(json.dumps(case.config | {"quantization_config": asked}))
    with pytest.raises(CheckpointError, match="quantised with compressed-tensors"):
        case.load()


@pytest.mark.parametrize(
    ("family", "change"),
    [
        ("qwen3", {"use_sliding_window": True}),
        ("qwen3", {"attention_bias": True}),
        ("qwen3_moe", {"mlp_only_layers": [0]}),
        ("qwen3_moe", {"decoder_sparse_step": 2}),
        ("qwen3_moe", {"num_experts_per_tok": 9}),
        ("mixtral", {"sliding_window": 64}),
    ],
)
def test_settings_that_would_be_computed_wrongly_are_refused(tmp_path, family, change):
    case = make_hub(tmp_path / "model", family, Recipe(store="f32", layers=1))
    (tmp_path / "model" / "config.json").write_text(json.dumps(case.config | change))
    with pytest.raises(CheckpointError, match=next(iter(change))) as raised:
        case.load()
    assert "\n" not in str(raised.value)
