from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kt_tui.catalog.entry import ModelState
from kt_tui.catalog.inspect import inspect_path

SECOND = "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
WriteGguf = Callable[..., Path]
TENSORS = {"a": (np.zeros((4, 32), np.float32), "Q4_1"), "n": (np.zeros(8, np.float32), "F32")}


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def test_a_complete_checkpoint(checkpoint: Path) -> None:
    found = inspect_path(checkpoint)
    assert (found.state, found.problems) == (ModelState.COMPLETE, ())
    assert (found.format, found.family, found.bytes) == ("safetensors-fp8", "minimax_m2", size_of(checkpoint))


@pytest.mark.parametrize(
    ("dtype", "config", "label"),
    [
        ("BF16", {}, "safetensors-bf16"),
        ("F32", {}, "safetensors-fp32"),
        (
            "I32",
            {"quantization_config": {"quant_method": "compressed-tensors"}},
            "safetensors-compressed-tensors",
        ),
        ("U8", {"quantization_config": {"quant_method": "mxfp4"}}, "safetensors-mxfp4"),
        ("U8", {"quantization_config": "odd"}, "safetensors-packed"),
        ("F8_E5M2", {}, "safetensors-f8_e5m2"),
    ],
)
def test_the_format_is_that_of_most_bytes(
    dtype: str, config: dict[str, object], label: str, tmp_path: Path, write_safetensors: Callable[..., Path]
) -> None:
    write_safetensors(tmp_path / "model.safetensors", {"w": (dtype, 800), "scale": ("F32", 32)})
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "x", **config}))
    assert inspect_path(tmp_path).format == label


def test_a_missing_shard_is_named(checkpoint: Path) -> None:
    (checkpoint / SECOND).unlink()
    found = inspect_path(checkpoint)
    assert (found.state, found.bytes) == (ModelState.INCOMPLETE, size_of(checkpoint))
    assert found.problems == (f"{checkpoint} lacks {SECOND}; fetch the model again",)


def test_many_missing_shards_are_counted(checkpoint: Path) -> None:
    weight_map = {f"w{n}": f"model-{n:05d}.safetensors" for n in range(9)}
    (checkpoint / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    assert "model-00002.safetensors and 6 more; fetch" in inspect_path(checkpoint).problems[0]


@pytest.mark.parametrize("keep", [0, 5, 60, -1])
def test_a_cut_shard_is_named_with_its_sizes(checkpoint: Path, keep: int) -> None:
    path = checkpoint / SECOND
    data = path.read_bytes()[: keep if keep >= 0 else len(path.read_bytes()) + keep]
    path.write_bytes(data)
    found = inspect_path(checkpoint)
    assert found.state is ModelState.INCOMPLETE
    assert found.problems[0].startswith(f"{path} is cut short: {len(data)} of ")


@pytest.mark.parametrize(
    "data", [b"PK\x03\x04" + bytes(500), b"\x10" + bytes(7) + b"not json........" + bytes(50)]
)
def test_a_file_that_is_something_else_is_wrong(checkpoint: Path, data: bytes) -> None:
    (checkpoint / SECOND).write_bytes(data)
    found = inspect_path(checkpoint)
    assert found.state in (ModelState.WRONG, ModelState.INCOMPLETE)
    assert str(checkpoint / SECOND) in found.problems[0]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": ' * 3000])
def test_a_damaged_configuration_is_wrong(checkpoint: Path, text: str) -> None:
    (checkpoint / "config.json").write_text(text)
    found = inspect_path(checkpoint)
    assert found.state is ModelState.WRONG
    assert "config.json is not valid JSON" in found.problems[0]


@pytest.mark.parametrize(
    ("key", "value"), [("hidden_size", 0), ("num_hidden_layers", -3), ("vocab_size", False)]
)
def test_an_impossible_configuration_is_wrong(checkpoint: Path, key: str, value: int) -> None:
    (checkpoint / "config.json").write_text(json.dumps({"model_type": "minimax_m2", key: value}))
    found = inspect_path(checkpoint)
    assert found.state is ModelState.WRONG
    assert f"config.json says {key}={value}, which makes no sense" in found.problems[0]


def test_a_missing_configuration_is_incomplete(checkpoint: Path) -> None:
    (checkpoint / "config.json").unlink()
    assert inspect_path(checkpoint).problems == (f"{checkpoint} lacks config.json; fetch the model again",)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a/b", "..", "x\0y"])
def test_an_index_that_leads_outside_is_wrong(checkpoint: Path, name: str) -> None:
    (checkpoint / INDEX).write_text(json.dumps({"weight_map": {"w": name}}))
    found = inspect_path(checkpoint)
    assert found.state is ModelState.WRONG
    assert "names a file outside its folder" in found.problems[0]


@pytest.mark.parametrize("text", ["", "{}", '{"weight_map": []}', '{"weight_map": {}}'])
def test_a_damaged_index_is_wrong(checkpoint: Path, text: str) -> None:
    (checkpoint / INDEX).write_text(text)
    assert inspect_path(checkpoint).state is ModelState.WRONG


# GGUF files, and folders that mix formats.


def test_a_gguf_file(write_gguf: WriteGguf) -> None:
    path = write_gguf("X.Q4_1.gguf", {}, TENSORS)
    found = inspect_path(path)
    assert (found.path, found.state, found.problems) == (path, ModelState.COMPLETE, ())
    assert (found.format, found.family, found.bytes) == ("gguf-q4_1", "llama", path.stat().st_size)


def test_a_folder_with_one_gguf_means_that_file(write_gguf: WriteGguf) -> None:
    path = write_gguf("X.gguf", {}, TENSORS)
    assert inspect_path(path.parent) == inspect_path(path)


def test_a_folder_with_several_gguf_asks_for_one(write_gguf: WriteGguf) -> None:
    write_gguf("a.gguf", {}, TENSORS)
    folder = write_gguf("b.gguf", {}, TENSORS).parent
    found = inspect_path(folder)
    assert found.state is ModelState.WRONG
    assert found.problems == (f"{folder} holds 2 GGUF models (a.gguf, b.gguf); name one file",)


def test_both_formats_in_one_folder_get_a_warning_that_names_both(
    checkpoint: Path, write_gguf: WriteGguf
) -> None:
    write_gguf("X-Q4.gguf", {}, TENSORS).rename(checkpoint / "X-Q4.gguf")
    found = inspect_path(checkpoint)
    assert (found.state, found.format, found.path) == (ModelState.COMPLETE, "safetensors-fp8", checkpoint)
    assert "holds safetensors and GGUF files (X-Q4.gguf)" in found.problems[0]
    assert inspect_path(checkpoint / "X-Q4.gguf").format == "gguf-q4_1"


def test_a_folder_without_weights_says_so(tmp_path: Path) -> None:
    found = inspect_path(tmp_path)
    assert found.state is ModelState.WRONG
    assert found.problems == (f"no weight files (*.safetensors or *.gguf) in {tmp_path}",)


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80")
    assert "only PyTorch pickle files, which are never loaded" in inspect_path(tmp_path).problems[0]


def test_one_shard_is_no_model(checkpoint: Path) -> None:
    found = inspect_path(checkpoint / SECOND)
    assert found.state is ModelState.WRONG
    assert "name the folder that holds it" in found.problems[0]


def test_a_split_gguf_is_one_model(write_gguf: WriteGguf) -> None:
    parts = [write_gguf(f"m-0000{n}-of-00002.gguf", {}, TENSORS) for n in (1, 2)]
    found = inspect_path(parts[0].parent)
    assert (found.state, found.path) == (ModelState.COMPLETE, parts[0])
    assert found.bytes == sum(part.stat().st_size for part in parts)
    parts[0].unlink()
    found = inspect_path(parts[1])
    assert found.state is ModelState.INCOMPLETE
    assert found.problems == (f"{parts[0].parent} lacks {parts[0].name}",)


def test_a_cut_gguf_is_named_with_its_sizes(write_gguf: WriteGguf) -> None:
    path = write_gguf("x.gguf", {}, TENSORS)
    os.truncate(path, path.stat().st_size - 40)
    found = inspect_path(path)
    assert found.state is ModelState.INCOMPLETE
    assert "is cut short" in found.problems[0]


@pytest.mark.parametrize("data", [b"", b"GGUF", b"hello", b"GGUF\x03\0\0\0" + b"\xff" * 60])
def test_a_gguf_that_is_none_is_wrong(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    found = inspect_path(path)
    assert found.state is ModelState.WRONG
    assert str(path) in found.problems[0]


def test_nothing_at_the_path_is_offline(tmp_path: Path) -> None:
    found = inspect_path(tmp_path / "nas" / "model")
    assert found.state is ModelState.OFFLINE
    assert "not mounted" in found.problems[0]


# The model hub's cache.


def test_a_hub_snapshot_without_its_weights_is_incomplete(tmp_path: Path) -> None:
    home = tmp_path / "models--MiniMaxAI--MiniMax-M2"
    snapshot, blobs = home / "snapshots" / "abc", home / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    (blobs / "x.incomplete").touch()
    (snapshot / "config.json").write_text('{"model_type": "minimax_m2"}')
    (snapshot / "tokenizer.json").write_text("{}")
    (snapshot / "model.safetensors").symlink_to("../../blobs/dead")
    found = inspect_path(snapshot)
    assert (found.state, found.bytes, found.family) == (ModelState.INCOMPLETE, 0, "minimax_m2")
    assert found.problems == (
        f"{snapshot} lacks model.safetensors (a link to nothing); resume it with: hf download MiniMaxAI/MiniMax-M2",
    )


def test_a_snapshot_with_its_configuration_only_is_incomplete(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "x"}')
    found = inspect_path(tmp_path)
    assert (found.state, found.bytes) == (ModelState.INCOMPLETE, 0)
    assert "lacks the weights (*.safetensors)" in found.problems[0]


def test_links_into_the_blobs_are_followed(checkpoint: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "models--a--b" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    for path in checkpoint.iterdir():
        (snapshot / path.name).symlink_to(path)
    found = inspect_path(snapshot)
    assert (found.state, found.bytes) == (ModelState.COMPLETE, size_of(checkpoint))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    damage=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4),
    name=st.booleans(),
)
def test_any_damage_becomes_a_state(checkpoint: Path, damage: list[tuple[int, int]], name: bool) -> None:
    victim = checkpoint / ("model-00001-of-00002.safetensors" if name else INDEX)
    original = victim.read_bytes()
    data = bytearray(original)
    for at, value in damage:
        data[at % len(data)] = value
    victim.write_bytes(data)
    found = inspect_path(checkpoint)
    victim.write_bytes(original)
    assert found.state is ModelState.COMPLETE or found.problems
