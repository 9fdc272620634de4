"""What is planned for a checkpoint's weights is what the kernels take."""

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from engine import budget, cpu
from tests.csrc.int_oracle import MAKERS

ROWS, COLUMNS = 48, 512


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"])
def test_matrices_of_a_gguf_are_planned_as_they_are_packed(tmp_path: Path, kind: str) -> None:
    raw = MAKERS[kind.lower()](np.random.default_rng(0), ROWS, COLUMNS)[0]
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(COLUMNS)
    writer.add_feed_forward_length(ROWS)
    writer.add_head_count(2)
    for name in ("token_embd", "output", "blk.0.ffn_gate"):
        writer.add_tensor(f"{name}.weight", raw.reshape(ROWS, -1), raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    _, planned = budget.read_budget_inputs(tmp_path / "model.gguf")
    fmt: cpu.Format = kind.lower()  # type: ignore[assignment]
    packed = cpu.Linear(cpu.Team(1), fmt, torch.from_numpy(raw), rows=ROWS, cols=COLUMNS).nbytes
    assert (planned.head, planned.other) == (packed, packed)
    assert planned.embedding == raw.size  # looked up in the file
