from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kt_tui.catalog.model_hash import model_hash

MIB = 1 << 20


def shard(path: Path, tensors: dict[str, int], fill: int = 0) -> None:
    """A safetensors file with tensors of so many bytes, all of one value."""
    header, at = {}, 0
    for name, size in tensors.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    raw = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + bytes([fill]) * at)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "model"
    made.mkdir()
    (made / "config.json").write_text('{"model_type": "llama"}')
    shard(made / "model-00001-of-00002.safetensors", {"a": 3 * MIB, "b": 8})
    shard(made / "model-00002-of-00002.safetensors", {"c": 100})
    return made


def test_it_is_the_same_wherever_the_checkpoint_lies(folder: Path, tmp_path: Path) -> None:
    before = model_hash(folder)
    assert before is not None
    assert len(before) == 32
    moved = tmp_path / "disk" / "other-name"
    moved.parent.mkdir()
    folder.rename(moved)
    os.utime(moved / "config.json", (0, 0))
    (moved / "README.md").write_text("words")
    (moved / ".cache").mkdir()
    linked = tmp_path / "link"
    linked.mkdir()
    for file in moved.iterdir():
        (linked / file.name).symlink_to(file)
    assert model_hash(moved) == model_hash(linked) == before


def other_configuration(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "qwen3"}')


def other_type(folder: Path) -> None:
    path = folder / "model-00002-of-00002.safetensors"
    path.write_bytes(path.read_bytes().replace(b'"U8"', b'"I8"'))


def other_size(folder: Path) -> None:
    shard(folder / "model-00002-of-00002.safetensors", {"c": 101})


def other_values(folder: Path) -> None:
    shard(folder / "model-00001-of-00002.safetensors", {"a": 3 * MIB, "b": 8}, fill=7)


def a_shard_less(folder: Path) -> None:
    (folder / "model-00002-of-00002.safetensors").unlink()


def other_end(folder: Path) -> None:
    with (folder / "model-00001-of-00002.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"!")


@pytest.mark.parametrize(
    "change", [other_configuration, other_type, other_size, other_values, a_shard_less, other_end]
)
def test_another_checkpoint_has_another_hash(change: Callable[[Path], None], folder: Path) -> None:
    before = model_hash(folder)
    change(folder)
    assert model_hash(folder) not in {before, None}


def test_a_gguf_file_may_be_renamed_and_its_parts_count(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"m[1]-0000{number}-of-00002.gguf").write_bytes(b"GGUF" + bytes([number]) * 100)
    before = model_hash(tmp_path / "m[1]-00001-of-00002.gguf")
    assert before is not None
    for number in (1, 2):
        (tmp_path / f"m[1]-0000{number}-of-00002.gguf").rename(tmp_path / f"n-0000{number}-of-00002.gguf")
    assert model_hash(tmp_path / "n-00001-of-00002.gguf") == before
    (tmp_path / "n-00002-of-00002.gguf").write_bytes(b"GGUF" + bytes(101))
    assert model_hash(tmp_path / "n-00001-of-00002.gguf") not in {before, None}


def test_it_reads_little_of_a_large_file(tmp_path: Path) -> None:
    path = tmp_path / "huge.gguf"
    with path.open("wb") as file:
        file.write(b"GGUF")
        file.truncate(1 << 36)  # a hole: 64 GiB could not be read within the time of a test
    assert model_hash(path) is not None


def test_without_weights_there_is_none(tmp_path: Path) -> None:
    assert model_hash(tmp_path) is None
    (tmp_path / "config.json").write_text("{}")
    assert model_hash(tmp_path) is None
    assert model_hash(tmp_path / "gone.gguf") is None
    (tmp_path / "a.safetensors").symlink_to("gone")
    assert model_hash(tmp_path) is None
