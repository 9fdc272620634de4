"""Every kind of damage to a checkpoint's files ends in one sentence that names the file, before weights are read."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine import cpu
from engine.config import EngineConfig
from engine.errors import EngineError
from engine.runner import Runner
from engine.weights.index import open_checkpoint

INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(minimax: Any, tmp_path: Path) -> Path:
    """A sound checkpoint of three shards, to be damaged."""
    return Path(shutil.copytree(minimax(store="fp8", shards=3).path, tmp_path / "model"))


@pytest.fixture
def file(llama: Any, tmp_path: Path) -> Path:
    """A sound GGUF file, to be damaged."""
    return Path(shutil.copy(llama({"other": "Q8_0"}).path, tmp_path / "model.gguf"))


@pytest.fixture(autouse=True)
def _no_heavy_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a weight was handed to the kernels before the damage was found")

    monkeypatch.setattr(cpu.Linear, "__init__", refuse)
    monkeypatch.setattr(cpu.ExpertLayer, "__init__", refuse)


def complaint(path: Path) -> str:
    with pytest.raises(EngineError) as raised:
        Runner.load(EngineConfig(path, cpu_threads=1, max_total_tokens=64))
    message = str(raised.value)
    assert "\n" not in message
    assert len(message) < 600
    return message


def rewrite(folder: Path, change: Any) -> None:
    """Change the tensors and write them as one file."""
    tensors: dict[str, torch.Tensor] = {}
    for shard in folder.glob("*.safetensors"):
        tensors |= load_file(shard)
        shard.unlink()
    (folder / INDEX).unlink()
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def reconfigure(folder: Path, **change: Any) -> None:
    config = folder / "config.json"
    document = json.loads(config.read_text()) | change
    config.write_text(json.dumps({key: value for key, value in document.items() if value != "absent"}))


def shard(folder: Path) -> Path:
    return folder / "model-00002-of-00003.safetensors"


def test_a_path_that_does_not_exist(tmp_path):
    assert "does not exist" in complaint(tmp_path / "nothing")


def test_a_file_that_is_no_model(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    assert "not a model" in complaint(tmp_path / "notes.txt")


def test_a_folder_without_a_configuration(folder):
    (folder / "config.json").unlink()
    assert "config.json is missing" in complaint(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, '{"a": 1} x', "\x00"])
def test_a_damaged_configuration(folder, text):
    (folder / "config.json").write_text(text)
    assert "config.json is damaged" in complaint(folder)


def test_a_folder_without_weights(folder):
    for path in [*folder.glob("*.safetensors"), folder / INDEX]:
        path.unlink()
    assert "no .safetensors file" in complaint(folder)


def test_a_missing_shard(folder):
    shard(folder).unlink()
    assert "model-00002-of-00003.safetensors of 3 shards is missing" in complaint(folder)


def test_missing_shards_without_an_index(folder):
    (folder / INDEX).unlink()
    shard(folder).unlink()
    assert "lacks the tensor" in complaint(folder)


@pytest.mark.parametrize("keep", [0, 5, 100, 5_000, -1])
def test_a_truncated_shard(folder, keep):
    data = shard(folder).read_bytes()
    shard(folder).write_bytes(data[:keep])
    message = complaint(folder)
    assert "model-00002-of-00003.safetensors" in message
    assert "cut short" in message


@pytest.mark.parametrize(
    "header",
    [
        b"not json at all",
        b"[1, 2]",
        b'{"x": 5}',
        b'{"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}',
        b'{"x": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}',
        b'{"x": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}',
        b'{"x": {"dtype": "F32", "shape": [1.5], "data_offsets": [0, 6]}}',
        b'{"x": {"dtype": 7, "shape": [1], "data_offsets": [0, 4]}}',
        b'{"x": {"dtype": "F32", "data_offsets": [0, 4]}}',
        b"\xff\xfe",
    ],
)
def test_a_damaged_shard_header(folder, header):
    shard(folder).write_bytes(len(header).to_bytes(8, "little") + header + bytes(64))
    message = complaint(folder)
    assert "model-00002-of-00003.safetensors has a damaged header" in message


def test_a_header_of_an_absurd_length(folder):
    shard(folder).write_bytes(b"\xff" * 100)
    assert "not a safetensors file" in complaint(folder)


@pytest.mark.parametrize("text", ["{}", '{"weight_map": 3}', '{"weight_map": {}}'])
def test_an_index_without_a_map(folder, text):
    (folder / INDEX).write_text(text)
    assert f"{INDEX} has no weight_map" in complaint(folder)


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/passwd", "", 5])
def test_an_index_that_leaves_its_folder(folder, name):
    (folder / INDEX).write_text(json.dumps({"weight_map": {"model.norm.weight": name}}))
    assert "not a file name" in complaint(folder)


def test_an_index_that_names_a_tensor_that_is_not_there(folder):
    document = json.loads((folder / INDEX).read_text())
    document["weight_map"]["model.extra.weight"] = shard(folder).name
    (folder / INDEX).write_text(json.dumps(document))
    message = complaint(folder)
    assert "model-00002-of-00003.safetensors lacks model.extra.weight" in message


@pytest.mark.parametrize(
    "name",
    [
        "model.embed_tokens.weight",
        "model.layers.1.self_attn.q_norm.weight",
        "model.layers.0.block_sparse_moe.experts.7.w2.weight",
        "model.layers.0.block_sparse_moe.experts.3.w1.weight_scale_inv",
        "model.layers.1.block_sparse_moe.e_score_correction_bias",
        "lm_head.weight",
    ],
)
def test_a_missing_tensor(folder, name):
    rewrite(folder, lambda tensors: tensors.pop(name))
    assert f"lacks the tensor {name}" in complaint(folder)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("model.norm.weight", (191,)),
        ("lm_head.weight", (192, 300)),
        ("model.layers.0.block_sparse_moe.experts.7.w2.weight", (96, 192)),
        ("model.layers.0.block_sparse_moe.experts.3.w1.weight_scale_inv", (1, 1)),
        ("model.layers.0.block_sparse_moe.gate.weight", (9, 192)),
    ],
)
def test_a_tensor_of_another_shape(folder, name, shape):
    rewrite(folder, lambda tensors: tensors.update({name: torch.zeros(shape, dtype=tensors[name].dtype)}))
    message = complaint(folder)
    assert f"{name} has the shape {list(shape)}" in message
    assert "model.safetensors" in message


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("model.norm.weight", torch.int32),
        ("model.norm.weight", torch.float8_e4m3fn),
        ("model.layers.0.self_attn.o_proj.weight", torch.float8_e5m2),
        ("model.layers.0.self_attn.o_proj.weight", torch.int8),
        ("model.layers.0.self_attn.o_proj.weight_scale_inv", torch.int64),
    ],
)
def test_a_tensor_of_another_type(folder, name, dtype):
    rewrite(folder, lambda tensors: tensors.update({name: tensors[name].float().to(dtype)}))
    message = complaint(folder)
    assert name in message
    assert "is stored as" in message


def test_an_embedding_in_fp8(folder):
    name = "model.embed_tokens.weight"
    scale = {name + "_scale_inv": torch.ones(3, 2)}
    rewrite(folder, lambda tensors: tensors.update({name: tensors[name].to(torch.float8_e4m3fn)} | scale))
    assert f"{name} is stored as FP8" in complaint(folder)


def test_experts_of_mixed_types(folder):
    name = "model.layers.1.block_sparse_moe.experts.3.w3.weight"
    rewrite(folder, lambda tensors: tensors.update({name: tensors[name].bfloat16()}))
    assert f"{name} is stored as BF16" in complaint(folder)


@pytest.mark.parametrize("named", ["absent", [], ["DeepseekV3ForCausalLM"], "LlamaForCausalLM", [3]])
def test_an_architecture_that_is_not_run(folder, named):
    reconfigure(folder, architectures=named)
    message = complaint(folder)
    assert "does not run" in message
    assert "MiniMaxM2ForCausalLM" in message


@pytest.mark.parametrize(
    "quantization",
    [
        {"quant_method": "gptq", "bits": 4},
        {"quant_method": "compressed-tensors"},
        {"quant_method": "fp8"},
        {"quant_method": "fp8", "weight_block_size": [64, 64]},
        {"quant_method": "fp8", "weight_block_size": [128, 128], "fmt": "e5m2"},
        "fp8",
    ],
)
def test_a_quantisation_that_is_not_run(folder, quantization):
    reconfigure(folder, quantization_config=quantization)
    message = complaint(folder)
    assert str(folder) in message
    assert "BF16" in message


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"hidden_size": "absent"}, "hidden_size"),
        ({"hidden_size": -4}, "hidden_size"),
        ({"hidden_size": 193}, "embed_tokens"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok"),
        ({"num_local_experts": 1 << 60}, "experts.8.w1.weight"),
        ({"rotary_dim": 33}, "rotary"),
        ({"rotary_dim": 64}, "rotary"),
        ({"rms_norm_eps": 0}, "rms_norm_eps"),
        ({"scoring_func": "softmax"}, "scoring_func"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"use_qk_norm": False}, "use_qk_norm"),
        ({"shared_intermediate_size": 64}, "shared_intermediate_size"),
        ({"attn_type_list": [1, 0]}, "attn_type_list"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope_scaling"),
    ],
)
def test_settings_that_would_be_computed_wrongly(folder, change, names):
    reconfigure(folder, **change)
    assert names in complaint(folder)


@pytest.mark.parametrize("share", [0.0, 0.00001, 0.001, 0.01, 0.2, 0.99])
def test_a_truncated_gguf(file, share):
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * share)])
    assert str(file) in complaint(file)


def test_a_gguf_that_lost_one_byte(file):
    file.write_bytes(file.read_bytes()[:-1])
    assert "cut short" in complaint(file)


@pytest.mark.parametrize("at", [0, 4, 8, 12, 16, 24, 40, 60])
def test_a_gguf_with_a_damaged_header(file, at):
    data = bytearray(file.read_bytes())
    data[at : at + 8] = b"\xff" * 8
    file.write_bytes(data)
    assert str(file) in complaint(file)


@pytest.mark.parametrize(("number", "said"), [(99, "type 99"), (26, "I32"), (4, "type 4"), (40, "type 40")])
def test_a_gguf_of_a_type_that_is_not_run(file, number, said):
    data = bytearray(file.read_bytes())
    at = data.index(b"blk.1.ffn_up.weight") + len(b"blk.1.ffn_up.weight") + 4 + 16  # dimensions, their number
    assert int.from_bytes(data[at : at + 4], "little") == 8
    data[at : at + 4] = number.to_bytes(4, "little")
    file.write_bytes(data + bytes(1 << 20))
    message = complaint(file)
    assert f"blk.1.ffn_up.weight is stored as {said}, which this engine does not run" in message
    assert "Q4_1" in message


def test_a_gguf_of_another_architecture(file):
    data = file.read_bytes()
    file.write_bytes(data.replace(b"llama", b"mamba"))
    assert "GGUF mamba" in complaint(file)


def test_a_sound_checkpoint_reads_no_weight(folder):
    """Opening touches headers only: what is listed lies in the file, byte for byte."""
    checkpoint = open_checkpoint(folder)
    stored = load_file(shard(folder))
    for name, tensor in stored.items():
        found = checkpoint.tensors[name]
        assert found.shape == tuple(tensor.shape)
        assert found.raw.tobytes() == tensor.contiguous().view(torch.uint8).numpy().tobytes()
        assert not found.raw.flags.writeable
