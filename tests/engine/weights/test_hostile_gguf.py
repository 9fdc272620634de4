"""GGUF files that lie: one sentence with the file's name, whatever a header or a block claims."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from engine.config import EngineConfig
from engine.errors import EngineError
from engine.runner import Runner
from tests.engine.conftest import Recipe
from tests.engine.models.families import make_gguf

KINDS = {
    "other": "Q8_0",
    "ffn_up_exps": "Q5_0",
    "ffn_down_exps": "Q5_1",
    "attn_q": "F32",
    "attn_output": "Q4_1",
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    return make_gguf(folder / "model.gguf", "qwen3_moe", Recipe(layers=1, seed=1), KINDS).path


@pytest.fixture
def file(sound: Path, tmp_path: Path) -> Path:
    """A sound file, to be damaged."""
    return Path(shutil.copy(sound, tmp_path / "model.gguf"))


def complaint(path: Path) -> str:
    with pytest.raises(EngineError) as raised:
        Runner.load(EngineConfig(path, cpu_threads=1, max_total_tokens=64))
    message = str(raised.value)
    assert str(path) in message
    assert "\n" not in message
    assert len(message) < 700
    return message


def entry(data: bytes, name: str) -> tuple[int, int]:
    """Where a tensor's dimensions and its offset stand in the header."""
    text = name.encode()
    at = data.index(struct.pack("<Q", len(text)) + text) + 8 + len(text)
    count = int.from_bytes(data[at : at + 4], "little")
    return at + 4, at + 4 + 8 * count + 4


def place(path: Path, name: str) -> int:
    """The first byte of a tensor's data."""
    return next(int(t.data_offset) for t in gguf.GGUFReader(path).tensors if t.name == name)


def put(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def test_the_sound_file_loads(file):
    Runner.load(EngineConfig(file, cpu_threads=1, max_total_tokens=64))


@pytest.mark.parametrize("offset", [1 << 20, 1 << 40, (1 << 63) - 32, (1 << 64) - 32])
@pytest.mark.parametrize("name", ["blk.0.ffn_gate_exps.weight", "output_norm.weight", "token_embd.weight"])
def test_an_offset_behind_the_end(file, name, offset):
    put(file, entry(file.read_bytes(), name)[1], struct.pack("<Q", offset))
    assert "is cut short" in complaint(file)


@pytest.mark.parametrize("size", [0, 1, 31, 1 << 33, (1 << 64) - 1])
@pytest.mark.parametrize("dimension", [0, 1, 2])
def test_a_dimension_that_is_not_the_models(file, dimension, size):
    put(
        file,
        entry(file.read_bytes(), "blk.0.ffn_down_exps.weight")[0] + 8 * dimension,
        struct.pack("<Q", size),
    )
    message = complaint(file)
    assert any(
        words in message for words in ("is cut short", "has the shape", "lacks the tensor", "no multiple")
    )


@pytest.mark.parametrize("count", [0, 7, 9, 1 << 31, (1 << 32) - 1])
def test_a_number_of_experts_that_is_not_the_files(file, count):
    data = file.read_bytes()
    key = b"qwen3moe.expert_count"
    put(file, data.index(key) + len(key) + 4, struct.pack("<I", count))
    message = complaint(file)
    assert any(words in message for words in ("num_experts", "lacks the tensor", "has the shape"))


@pytest.mark.parametrize("bits", [0x7C00, 0xFC00, 0x7E01])
@pytest.mark.parametrize(
    ("name", "block"),
    [
        ("blk.0.ffn_gate_exps.weight", 34),
        ("blk.0.ffn_up_exps.weight", 22),
        ("blk.0.ffn_down_exps.weight", 24),
        ("blk.0.attn_output.weight", 20),
        ("output.weight", 34),
    ],
)
def test_a_scale_that_is_no_number(file, name, block, bits):
    put(file, place(file, name) + 5 * block, np.array([bits], np.uint16).tobytes())
    message = complaint(file)
    assert "not finite" in message or "not a finite number" in message
    assert name.partition(".weight")[0].replace("up", "gate").replace("down", "gate") in message


def test_the_engine_leaves_with_the_sentence_and_an_exit_code(smollm2_gguf, tmp_path):
    file = Path(shutil.copy(smollm2_gguf, tmp_path / "model.gguf"))
    put(file, entry(file.read_bytes(), "output_norm.weight")[1], struct.pack("<Q", 1 << 40))
    done = subprocess.run(
        [sys.executable, "-m", "engine", "serve", "--model", str(file), "--port", "0"],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    assert f"{file} is cut short" in done.stdout + done.stderr
