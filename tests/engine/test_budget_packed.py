"""What is planned for a checkpoint's weights is what the kernels take."""

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from engine import budget, cpu
from engine.weights.formats import BY_GGUF
from engine.weights.index import open_checkpoint
from engine.weights.loader import Loader
from tests.engine.ggml_blocks import HALVES, random_blocks

ROWS, COLUMNS = 48, 512


@pytest.mark.parametrize("kind", sorted(BY_GGUF))
def test_matrices_of_a_gguf_are_planned_as_they_are_packed(tmp_path: Path, kind: str) -> None:
    if kind in {*HALVES, "MXFP4"}:
        raw = random_blocks(kind, np.random.default_rng(0), ROWS, COLUMNS)
    else:
        raw = np.zeros((ROWS, BY_GGUF[kind].nbytes(COLUMNS)), np.uint8)
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(COLUMNS)
    writer.add_feed_forward_length(ROWS)
    writer.add_head_count(2)
    for name in ("token_embd", "output", "blk.0.ffn_gate"):
        writer.add_tensor(f"{name}.weight", raw, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    _, planned = budget.read_budget_inputs(tmp_path / "model.gguf")
    loader = Loader(open_checkpoint(tmp_path / "model.gguf"), torch.device("cpu"))
    matrix = loader.matrix("lm_head.weight", ROWS, COLUMNS)
    ((data, scale),) = loader.converter.packable([matrix], [matrix.kept])
    packed = cpu.Linear(cpu.Team(1), matrix.kept, data, scale, rows=ROWS, cols=COLUMNS).nbytes
    assert (planned.head, planned.other) == (packed, packed)
    assert planned.embedding == raw.size  # looked up in the file
