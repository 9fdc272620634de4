from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.gguf_header import TENSOR_TYPES, GgufError, read_gguf_header

WriteGguf = Callable[..., Path]


@pytest.fixture
def small(write_gguf: WriteGguf) -> Path:
    metadata = {
        "llama.block_count": 2,
        "llama.rope.freq_base": 10000.0,
        "tokenizer.ggml.tokens": ["a", "é", "漢", ""],
        "tokenizer.ggml.scores": [0.5, -1.0],
        "tokenizer.ggml.add_bos_token": True,
    }
    tensors = {
        "odd": (np.arange(15, dtype=np.float32).reshape(5, 3), "F32"),
        "matrix": (np.ones((4, 64), np.float32), "Q8_0"),
        "wide": (np.ones((2, 3, 32), np.float32), "Q4_1"),
    }
    return write_gguf("small.gguf", metadata, tensors)


def test_agrees_with_the_gguf_library(small: Path) -> None:
    ours, theirs = read_gguf_header(small), GGUFReader(small)
    fields = {name: field.contents() for name, field in theirs.fields.items() if not name.startswith("GGUF.")}
    assert dict(ours.metadata) == fields
    rows = {
        t.name: (tuple(map(int, t.shape))[::-1], t.tensor_type.name, t.data_offset, t.n_bytes)
        for t in theirs.tensors
    }
    assert {t.name: (t.shape, t.type, t.offset, t.nbytes) for t in ours.tensors.values()} == rows
    assert ours.architecture == "llama"
    assert ours.needed_bytes <= ours.file_bytes == small.stat().st_size


def test_block_sizes_are_those_of_the_gguf_library() -> None:
    theirs = {kind.value: (kind.name, *GGML_QUANT_SIZES[kind]) for kind in GGMLQuantizationType}
    assert {number: theirs[number] for number in TENSOR_TYPES} == dict(TENSOR_TYPES)


def test_a_cut_tensor_shows_in_the_sizes(small: Path) -> None:
    whole = read_gguf_header(small)
    small.write_bytes(small.read_bytes()[: whole.needed_bytes - 1])
    cut = read_gguf_header(small)
    assert cut.file_bytes == whole.needed_bytes - 1 < cut.needed_bytes


def test_no_cut_goes_unnoticed(small: Path) -> None:
    data, needed = small.read_bytes(), read_gguf_header(small).needed_bytes
    seen = set()
    for length in range(4, needed, 7):
        small.write_bytes(data[:length])
        try:
            header = read_gguf_header(small)
        except GgufError as error:
            seen.add("small.gguf" in str(error))
        else:
            seen.add(header.needed_bytes > header.file_bytes == length)
    assert seen == {True}


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_damage_is_a_sentence_and_never_another_error(small: Path, data: st.DataObject) -> None:
    raw = bytearray(small.with_name("small.gguf").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(4, min(len(raw), 600) - 1))] = data.draw(st.integers(0, 255))
    victim = small.with_name("damaged.gguf")
    victim.write_bytes(raw)
    with contextlib.suppress(GgufError):
        assert read_gguf_header(victim).path == victim


@pytest.mark.parametrize("text", [b"", b"GG", b"PK\x03\x04 something else"])
def test_what_is_no_gguf_is_named(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(text)
    with pytest.raises(GgufError, match="is not a GGUF file"):
        read_gguf_header(path)


def test_other_versions_are_refused(small: Path) -> None:
    raw = bytearray(small.read_bytes())
    raw[4:8] = (1).to_bytes(4, "little")
    small.write_bytes(raw)
    with pytest.raises(GgufError, match="version 1"):
        read_gguf_header(small)
