"""The synthetic mixture of experts is a model like a real one: other readers can read it, and the engine runs it."""

from __future__ import annotations

import re
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from bench.peers import synthetic_moe
from bench.peers.synthetic_moe import MIXES, Shape, main, write
from engine.config import EngineConfig
from engine.gguf_header import GgufHeader, read_gguf_header
from engine.runner import Row, Runner

SMALL = Shape(hidden=512, intermediate=256, experts=16, top=4, heads=4, kv_heads=2, head_dim=64, layers=2)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory) -> GgufHeader:
    path = tmp_path_factory.mktemp("vocabulary") / "v.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([*"abcdefghijklmnopqrstuvwxyz", "ab", "<end>"])
    writer.add_token_types([1] * 27 + [3])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(27)
    writer.add_add_bos_token(False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read_gguf_header(path)


@pytest.mark.parametrize("mix", MIXES)
def test_values_have_the_spread_of_a_trained_models(tmp_path, vocabulary, mix):
    out = tmp_path / "m.gguf"
    assert write(out, SMALL, mix, vocabulary) == out.stat().st_size
    reader = gguf.GGUFReader(out)
    assert len(reader.tensors) == 3 + 12 * SMALL.layers
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float64).reshape(-1)
        if tensor.name.endswith("norm.weight"):
            assert (values == 1).all()
            continue
        expected = float(tensor.shape[0]) ** (0 if tensor.name == "token_embd.weight" else -0.5)
        expected *= 4 if tensor.name == "output.weight" else 1
        assert values.std() == pytest.approx(expected, rel=0.05), tensor.name
        assert abs(values.mean()) < 0.05 * expected, tensor.name
    types = {tensor.name: tensor.tensor_type for tensor in reader.tensors}
    assert types["blk.0.ffn_gate_exps.weight"] is MIXES[mix][0]
    assert types["blk.1.ffn_down_exps.weight"] is MIXES[mix][1]


def test_the_tokenizer_comes_along_and_equal_arguments_give_equal_files(tmp_path, vocabulary):
    one, two, other = (tmp_path / f"{name}.gguf" for name in "abc")
    for path, seed in ((one, 7), (two, 7), (other, 8)):
        write(path, SMALL, "q4_k", vocabulary, seed)
    assert one.read_bytes() == two.read_bytes() != other.read_bytes()
    copied = read_gguf_header(one).metadata
    for key, value in vocabulary.metadata.items():
        if key.startswith("tokenizer."):
            assert copied[key] == value


@pytest.mark.parametrize("mix", ["q8_0", "q4_0", "q4_k"])
def test_the_engine_runs_it_and_uses_all_experts(tmp_path, vocabulary, mix):
    out = tmp_path / "m.gguf"
    write(out, SMALL, mix, vocabulary)
    runner = Runner.load(EngineConfig(model=out, max_total_tokens=512, cpu_threads=1))
    ids = torch.randint(0, 28, (200,), generator=torch.Generator().manual_seed(3)).tolist()
    (logits,) = runner.step([Row(runner.open_sequence(), ids, want_logits=True)])
    assert logits is not None
    assert torch.isfinite(logits).all()
    assert logits.std() > 0.5
    # 200 tokens, 4 of 16 experts each, that no router of random weights leaves to a few
    for hits in runner.stats.expert_hits:
        assert sum(hits) == 800
        assert min(hits) > 0


def test_what_does_not_fit_is_refused_in_a_sentence(tmp_path, vocabulary, monkeypatch):
    out = tmp_path / "m.gguf"
    with pytest.raises(
        ValueError, match=r"ffn_down_exps.weight has 96 columns, but Q4_K packs 256 at a time"
    ):
        write(out, Shape(512, 96, 4, 2, 4, 2, 64), "q4_k", vocabulary)
    usage = synthetic_moe.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(synthetic_moe.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(OSError, match=r"needs 0\.0 GB, but 0\.0 GB are free there"):
        write(out, SMALL, "q4_0", vocabulary)
    assert not out.exists()


def test_half_a_file_is_not_left_behind(tmp_path, vocabulary, monkeypatch):
    def fail(*_: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(synthetic_moe, "parts", fail)
    out = tmp_path / "m.gguf"
    with pytest.raises(OSError, match="gone"):
        write(out, SMALL, "q8_0", vocabulary)
    assert not out.exists()


def test_command_line(tmp_path, vocabulary, capsys, monkeypatch):
    monkeypatch.setitem(synthetic_moe.SHAPES, "qwen3-30b", SMALL)
    out = tmp_path / "m.gguf"
    words = [str(out), "--weights", "q4_k", "--layers", "1", "--experts", "8"]
    assert main([*words, "--vocabulary", str(vocabulary.path)]) == 0
    assert re.fullmatch(rf"{out}: 0\.0\d GB\n", capsys.readouterr().out)
    header = read_gguf_header(out)
    assert header.metadata["qwen3moe.block_count"] == 1
    assert header.metadata["qwen3moe.expert_count"] == 8
    assert (
        main([str(tmp_path / "x.gguf"), "--vocabulary", str(out), "--shape", "minimax", "--layers", "500"])
        == 1
    )
    assert re.match(r"error: .* needs \d+\.\d GB, but ", capsys.readouterr().err)
    assert Path(out).exists()
