"""4-bit checkpoints of compressed-tensors and GPTQ: what they compute, and which are refused unread."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine import budget, cpu
from engine.errors import CheckpointError
from engine.runner import Row
from engine.weights.index import open_checkpoint
from engine.weights.loader import Loader
from tests.engine.conftest import Case, Recipe
from tests.engine.models.families import GROUP_WEIGHTS, QUANTIZATION, make_hub

SIZES = {"hidden": 256, "intermediate": 128, "heads": 8, "head_dim": 32}
NAME = "model.layers.0.mlp.experts.3.up_proj."


def last_logits(runner: Any, ids: list[int]) -> torch.Tensor:
    sequence = runner.open_sequence()
    (logits,) = runner.step([Row(sequence, ids, want_logits=True)])
    runner.close_sequence(sequence)
    return logits


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Case]:
    cases: dict[str, Case] = {}

    def make(family: str, store: str, **sizes: int) -> Case:
        key = repr((family, store, sizes))
        if key not in cases:
            folder = tmp_path_factory.mktemp(store) / "model"
            cases[key] = make_hub(folder, family, Recipe(store=store, seed=5, **(SIZES | sizes)))
        return cases[key]

    return make


STORES = ["int4_g32", "int4_g32_experts", "gptq", "gptq_v2"]


@pytest.mark.parametrize("length", [1, 17, 130])
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("family", ["qwen3", "qwen3_moe", "mixtral"])
def test_logits_agree_with_the_oracle(made, bound, family, store, length):
    case = made(family, store)
    ids = torch.randint(0, 300, (length,), generator=torch.Generator().manual_seed(length)).tolist()
    expected = case.logits(ids)[-1]
    error = (last_logits(case.load(), ids) - expected).abs().max()
    assert error <= bound(expected, bf16_weights=True, integers=True, width=256)


def test_groups_of_32_fit_ragged_sizes(made, bound):
    case = made("qwen3_moe", "int4_g32", hidden=160, intermediate=96, heads=5, kv_heads=1)
    ids = list(range(40, 73))
    expected = case.logits(ids)[-1]
    error = (last_logits(case.load(), ids) - expected).abs().max()
    assert error <= bound(expected, bf16_weights=True, integers=True, width=160)


@pytest.mark.parametrize("store", STORES)
def test_the_plan_counts_what_the_engine_asks_for(made, store):
    case = made("qwen3_moe", store)
    assert budget.read_budget_inputs(case.path)[1].total == case.load().stats.weight_bytes


@pytest.mark.parametrize("store", ["int4_g32", "gptq"])
def test_planned_experts_are_as_large_as_packed_ones(made, monkeypatch, store):
    layers: list[cpu.ExpertLayer] = []
    init = cpu.ExpertLayer.__init__

    def note(self: cpu.ExpertLayer, *args: Any, **more: Any) -> None:
        layers.append(self)
        init(self, *args, **more)

    monkeypatch.setattr(cpu.ExpertLayer, "__init__", note)
    case = made("qwen3_moe", store)
    runner = case.load()
    assert budget.read_budget_inputs(case.path)[1].experts == sum(layer.nbytes for layer in layers)
    assert len(layers) == len(runner.stats.expert_hits)


@pytest.fixture
def _unread(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a weight was handed to the kernels")

    monkeypatch.setattr(cpu.Linear, "__init__", refuse)
    monkeypatch.setattr(cpu.ExpertLayer, "__init__", refuse)


def complaint(case: Case, path: Path) -> str:
    with pytest.raises(CheckpointError) as raised:
        Case(path, case.oracle, case.config).load()
    message = str(raised.value)
    assert "\n" not in message
    assert len(message) < 600
    return message


GROUP = {"targets": ["Linear"], "weights": GROUP_WEIGHTS}
ASKED = [
    ("int4_g32", {"config_groups": {"g": {"weights": GROUP_WEIGHTS | change}}}, names)
    for change, names in (
        ({"num_bits": 8}, "num_bits is 8"),
        ({"type": "float"}, "type is float"),
        ({"strategy": "channel"}, "strategy is channel"),
        ({"group_size": 128}, "group_size is 128"),
        ({"symmetric": False}, "symmetric is False"),
        ({"actorder": "group"}, "actorder is group"),
    )
]
ASKED += [
    (
        "int4_g32",
        {"config_groups": {"g": GROUP | {"input_activations": {"num_bits": 8}}}},
        "input_activations",
    ),
    ("int4_g32", {"config_groups": {"a": GROUP, "b": {"weights": None}}}, "leave weights out"),
    ("int4_g32", {"config_groups": {}}, "pack-quantized"),
    ("int4_g32", {"format": "marlin-24"}, "marlin-24"),
    ("gptq", {"bits": 8}, "bits is 8"),
    ("gptq", {"group_size": 32}, "group_size is 32"),
    ("gptq", {"group_size": -1}, "group_size is -1"),
    ("gptq", {"desc_act": True}, "desc_act is True"),
    ("gptq", {"sym": False}, "sym is False"),
    ("gptq", {"checkpoint_format": "marlin"}, "marlin"),
    ("gptq", {"checkpoint_format": ["gptq"]}, "checkpoint_format"),
    ("gptq", {"dynamic": {"+:.*down.*": {"bits": 8}}}, "dynamic"),
    ("gptq", {"quant_method": "awq"}, "awq"),
    # Zero points of 7 are those of the first layout, not of the second.
    ("gptq", {"checkpoint_format": "gptq_v2"}, "qzeros"),
    ("gptq_v2", {"checkpoint_format": "gptq"}, "qzeros"),
]


@pytest.mark.usefixtures("_unread")
@pytest.mark.parametrize(("store", "change", "names"), ASKED)
def test_other_kinds_are_refused_unread(made, tmp_path, store, change, names):
    case = made("qwen3_moe", store)
    path = Path(shutil.copytree(case.path, tmp_path / "model"))
    config = case.config | {"quantization_config": QUANTIZATION[store] | change}
    (path / "config.json").write_text(json.dumps(config))
    message = complaint(case, path)
    assert names in message
    assert str(path) in message


def without(tensors: dict[str, torch.Tensor], name: str) -> None:
    tensors.pop(NAME + name)


def replaced(
    tensors: dict[str, torch.Tensor], name: str, change: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    tensors[NAME + name] = change(tensors[NAME + name]).contiguous()


DAMAGE: list[tuple[str, str, Any]] = [
    ("int4_g32", "weight_shape", lambda x: x.flip(0)),
    ("int4_g32", "weight_scale", lambda x: x.half()),
    ("int4_g32", "weight_scale", lambda x: x[:, :-1]),
    ("int4_g32", "weight_packed", lambda x: x.long()),
    ("int4_g32", "weight_packed", lambda x: x[:-1]),
    ("int4_g32", "weight_scale", None),
    ("gptq", "qzeros", lambda x: x + 1),
    ("gptq", "qzeros", lambda x: torch.cat([x[:-1], x[-1:] + (1 << 28)])),
    ("gptq", "g_idx", lambda x: x.flip(0)),
    ("gptq", "scales", lambda x: x.bfloat16()),
    ("gptq", "scales", lambda x: x.T),
    ("gptq", "qweight", lambda x: x.T),
    ("gptq", "qzeros", None),
]


@pytest.mark.usefixtures("_unread")
@pytest.mark.parametrize(("store", "name", "change"), DAMAGE)
def test_damaged_parts_are_named_unread(made, tmp_path, store, name, change):
    case = made("qwen3_moe", store)
    path = Path(shutil.copytree(case.path, tmp_path / "model"))
    (path / "model.safetensors.index.json").unlink()
    tensors = load_file(path / "model.safetensors")
    if change is None:
        without(tensors, name)
    else:
        replaced(tensors, name, change)
    save_file(tensors, path / "model.safetensors")
    assert NAME + name in complaint(case, path)


@pytest.mark.parametrize(("store", "group"), [("int4_g32", 32), ("gptq", 128)])
def test_rows_that_are_no_whole_groups_are_refused(made, store, group):
    loader = Loader(open_checkpoint(made("qwen3_moe", store).path), torch.device("cpu"))
    with pytest.raises(CheckpointError, match=f"no multiple of the {group} that share a scale"):
        loader.matrix(NAME + "weight", 128, 208)


@pytest.mark.parametrize(("store", "name"), [("int4_g32", "weight_scale"), ("gptq", "scales")])
def test_scales_are_mapped_and_not_read_while_the_model_is_checked(made, store, name):
    checkpoint = open_checkpoint(made("qwen3_moe", store).path)
    matrix = Loader(checkpoint, torch.device("cpu")).matrix(NAME + "weight", 128, 256)
    assert np.shares_memory(matrix.scale, checkpoint.tensors[NAME + name].raw)


def test_a_header_of_an_odd_length_is_no_matter(made, bound, tmp_path):
    case = made("qwen3_moe", "int4_g32")
    path = Path(shutil.copytree(case.path, tmp_path / "model"))
    file = path / "model.safetensors"
    data = file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    file.write_bytes((length + 1).to_bytes(8, "little") + data[8 : 8 + length] + b" " + data[8 + length :])
    ids = list(range(20))
    expected = case.logits(ids)[-1]
    error = (last_logits(Case(path, case.oracle, case.config).load(), ids) - expected).abs().max()
    assert error <= bound(expected, bf16_weights=True, integers=True, width=256)


@pytest.mark.parametrize(("store", "name"), [("int4_g32", "weight_scale"), ("gptq", "scales")])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_scales_that_are_no_numbers_are_found_at_load(made, tmp_path, store, name, value):
    case = made("qwen3_moe", store)
    path = Path(shutil.copytree(case.path, tmp_path / "model"))
    tensors = load_file(path / "model.safetensors")
    tensors[NAME + name][-1, -1] = value
    save_file(tensors, path / "model.safetensors")
    assert "cannot be used" in complaint(case, path)


@pytest.mark.usefixtures("_unread")
def test_packed_weights_need_a_configuration_that_says_so(made, tmp_path):
    case = made("qwen3_moe", "int4_g32")
    path = Path(shutil.copytree(case.path, tmp_path / "model"))
    config = {key: value for key, value in case.config.items() if key != "quantization_config"}
    (path / "config.json").write_text(json.dumps(config))
    assert "lacks the tensor" in complaint(case, path)
