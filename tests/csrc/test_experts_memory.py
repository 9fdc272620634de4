"""Experts that come and go: unloading, replacing, and reading mapped files where they lie."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.cpu import ExpertLayer, Team
from engine.cpu_arrays import bytes_of, scale_of


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def load(layer: ExpertLayer, expert: int, scale: float) -> None:
    square = torch.eye(layer.hidden)
    layer.load(expert, square, square * scale, square)


def run(layer: ExpertLayer, expert: int, x: torch.Tensor) -> torch.Tensor:
    return layer.forward(x, torch.tensor([[expert]], dtype=torch.int32), torch.ones(1, 1))


def test_unloading_gives_memory_back_and_leaves_the_neighbours_alone():
    width = 1040  # slots that begin within a page of 2 MiB
    layer = ExpertLayer(Team(2), "f32", 4, width, width)
    for expert in range(4):
        load(layer, expert, expert + 1.0)
    x = torch.randn(1, width)
    before, size = [run(layer, e, x) for e in range(4)], layer.nbytes // 4
    held = resident()
    layer.unload(1)
    layer.unload(2)
    assert held - resident() > 1.8 * size
    assert layer.nbytes == 2 * size
    assert [layer.loaded(e) for e in range(4)] == [True, False, False, True]
    with pytest.raises(ValueError, match="routed to expert 1, which is not loaded"):
        run(layer, 1, x)
    assert torch.equal(run(layer, 0, x), before[0])
    assert torch.equal(run(layer, 3, x), before[3])
    layer.unload(1)  # once more
    load(layer, 2, 3.0)
    assert torch.equal(run(layer, 2, x), before[2])


def test_a_refused_replacement_leaves_the_former_expert():
    layer = ExpertLayer(Team(2), "fp8_channel", 2, 64, 48)
    good, one = np.full(64 * 48, 0x38, np.uint8), np.ones(64, np.float32)
    layer.load(0, good, good, good, one[:48], one[:48], one)
    x = torch.randn(1, 64)
    before = run(layer, 0, x)
    other, broken = np.full(64 * 48, 0x40, np.uint8), good.copy()
    broken[-1] = 0x7F
    for _ in range(2):
        with pytest.raises(ValueError, match="expert 0, down: FP8 weight at row 63, column 47"):
            layer.load(0, other, other, broken, one[:48], one[:48], one)
        assert torch.equal(run(layer, 0, x), before)
    with pytest.raises(ValueError, match="expert 1, down: FP8 weight at row 63, column 47"):
        layer.load(1, other, other, broken, one[:48], one[:48], one)
    assert not layer.loaded(1)
    layer.load(0, other, other, other, one[:48], one[:48], one)
    assert not torch.equal(run(layer, 0, x), before)


def test_numbers_of_experts_are_checked():
    layer = ExpertLayer(Team(1), "f32", 2, 4, 4)
    for call in (layer.unload, layer.loaded):
        for expert in (-1, 2):
            with pytest.raises(ValueError, match=f"expert {expert} does not exist; there are 2"):
                call(expert)


def test_experts_may_come_and_go_while_others_compute():
    width = 64
    layer = ExpertLayer(Team(2), "f32", 2, width, width)
    load(layer, 0, 1.0)
    x = torch.randn(1, width)
    expected, wrong, done = run(layer, 0, x), [], threading.Event()

    def compute() -> None:
        while not done.is_set():
            if not torch.equal(run(layer, 0, x), expected):
                wrong.append(1)

    threads = [threading.Thread(target=compute) for _ in range(2)]
    for thread in threads:
        thread.start()
    sizes = set()
    for _ in range(100):
        load(layer, 1, 2.0)
        load(layer, 0, 1.0)
        sizes.add(layer.nbytes)
        layer.unload(1)
        sizes.add(layer.nbytes)
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(sizes) == 2


def test_mapped_files_are_read_where_they_lie(tmp_path):
    path = tmp_path / "weights"
    np.arange(4096, dtype=np.uint16).tofile(path)
    mapped = np.memmap(path, np.uint8, "r")
    for rows in (mapped[1024:2048], mapped.reshape(8, 1024)[3:5], mapped.view(np.uint16)[:512]):
        assert np.shares_memory(bytes_of(rows), mapped)
    tensor = torch.from_file(str(path), size=4096, dtype=torch.bfloat16)
    assert bytes_of(tensor.reshape(8, 512)[2:4]).ctypes.data == tensor[1024:].data_ptr()
    scale = tensor[:64].reshape(4, 16)
    assert scale_of("int4_g32", scale).ctypes.data == scale.data_ptr()
    plain = np.memmap(path, np.float32, "r")[:32]
    assert np.shares_memory(scale_of("fp8_channel", plain), plain)
