"""Predicted speed: ceilings worked out by hand, errors so far, and reasons where nothing can be said."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from engine.budget import ModelShape, WeightBytes
from kt_tui.catalog.entry import ModelEntry
from kt_tui.catalog.shape import ModelShape as CatalogueShape
from kt_tui.hardware.calibration import Calibration, GpuRates, save_calibration
from kt_tui.hardware.fingerprint import fingerprint
from kt_tui.hardware.machine import Cpu, Gpu, Machine, Pcie
from kt_tui.hardware.rated import memory_estimate
from kt_tui.launch import ModelFacts, plan_launch
from kt_tui.launch.record import KEPT, Measured, add_measured, read_measured, record_file, seen
from kt_tui.launch.speed import (
    Split,
    decode_ceiling,
    prefill_ceiling,
    speed_document,
    speed_lines,
    with_speed,
)
from kt_tui.launch.work import Work, work_of_checkpoint, work_of_shape
from kt_tui.paths import Paths

MACHINE = Machine(cpu=Cpu(model="Unheard-of 9000", sockets=1))
CALIBRATION = Calibration(
    threads=8,
    isa="avx512",
    read=((1 << 20, 400e9), (1 << 30, 100e9)),
    kernels={"fp8_block128": 1e12, "q4_k": 0.5e12},
    gpus=(GpuRates("card", to_device=50e9, bf16=100e12, read=1000e9),),
)
# 10 GB of experts, 1 of 10 chosen; 1 GB of everything else.
WORK = Work(
    chosen_bytes=1_000_000_000,
    other_bytes=1_000_000_000,
    expert_bytes=10_000_000_000,
    total_bytes=11_000_000_000,
    chosen_ops=2e9,
    other_ops=1e9,
    attention_ops=0.0,
    experts=10,
    experts_per_token=1,
    kernel="fp8_block128",
)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(*(tmp_path / name for name in ("config", "data", "state", "cache")))


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        (Split(), 50.0),  # 2 GB at 100 GB/s
        (Split(gpus=1), 1 / (0.010 + 0.001)),  # experts by the processor, then 1 GB by the card at 1000 GB/s
        (Split(gpus=2), 1 / (0.010 + 0.0005)),
        (Split(gpus=1, gpu_experts=5), 1 / (0.005 + 0.0015)),  # half of the experts moved over
        (Split(gpus=1, gpu_experts=10), 1 / 0.002),
    ],
)
def test_decode_is_bytes_by_bandwidth(split: Split, expected: float) -> None:
    ceiling = decode_ceiling(WORK, split, MACHINE, CALIBRATION)
    assert ceiling.value == pytest.approx(expected)
    assert ceiling.measured


def test_a_model_that_fits_into_the_caches_is_read_from_there() -> None:
    small = dataclasses.replace(
        WORK, chosen_bytes=0, other_bytes=1 << 20, expert_bytes=0, total_bytes=1 << 20
    )
    assert decode_ceiling(small, Split(), MACHINE, CALIBRATION).value == pytest.approx(400e9 / (1 << 20))


@pytest.mark.parametrize(
    ("split", "tokens", "expected"),
    [
        # 3 GFLOP a token at 1 TFLOP/s
        (Split(chunk=4096), 2048, 1 / 0.003),
        # so short that reading weighs more: 1 - 0.9 of the experts' 10 GB and 1 GB at 100 GB/s for one token
        (Split(chunk=4096), 1, 1 / 0.020),
        # below the threshold the processor computes the experts, the card the rest
        (
            Split(gpus=1, layerwise_from=4096, chunk=4096),
            2048,
            2048 / (2048 * 2e9 / 1e12 + 2048 * 1e9 / 100e12),
        ),
        # above it two chunks copy 10 GB each at 50 GB/s
        (Split(gpus=1, layerwise_from=1024, chunk=1024), 2048, 2048 / 0.4),
        (Split(gpus=1, gpu_experts=5, layerwise_from=1024, chunk=1024), 2048, 2048 / 0.2),
    ],
)
def test_prefill_is_computing_or_copying(split: Split, tokens: int, expected: float) -> None:
    ceiling = prefill_ceiling(WORK, split, MACHINE, CALIBRATION, tokens)
    assert ceiling.value == pytest.approx(expected)


def test_without_a_measurement_or_a_known_processor_nothing_is_said() -> None:
    for ceiling in (
        decode_ceiling(WORK, Split(), MACHINE, None),
        prefill_ceiling(WORK, Split(), MACHINE, None),
    ):
        assert ceiling.value is None
        assert "--calibrate" in ceiling.told


@pytest.mark.parametrize(
    ("model", "sockets", "expected"),
    [
        ("AMD EPYC 9355 32-Core Processor", 2, 2 * 12 * 6000e6 * 8 * 0.8),
        ("AMD EPYC 9654 96-Core Processor", 1, 12 * 4800e6 * 8 * 0.8),
        ("Intel(R) Xeon(R) Gold 6454S", 2, 2 * 8 * 4800e6 * 8 * 0.8),
        ("Intel(R) Xeon(R) Platinum 8592+", 1, 8 * 5600e6 * 8 * 0.8),
        ("Intel(R) Xeon(R) Processor", 1, None),
        (None, 1, None),
    ],
)
def test_memory_is_estimated_by_its_channels(model: str | None, sockets: int, expected: float | None) -> None:
    estimate = memory_estimate(Machine(cpu=Cpu(model=model, sockets=sockets)))
    assert (estimate and estimate[0]) == (pytest.approx(expected) if expected else None)


def test_an_estimate_is_called_one() -> None:
    machine = Machine(
        cpu=Cpu(model="AMD EPYC 9355", sockets=1),
        gpus=(Gpu(0, name="NVIDIA GeForce RTX 5090", pcie=Pcie(max_gen=5, max_width=16)),),
    )
    document = speed_document("m", "sglang", WORK, split=Split(gpus=1), machine=machine, calibration=None)
    assert document["decode"]["basis"] == "estimated"
    assert document["prefill"]["basis"] == "unknown"
    assert any(text.startswith("estimate: at most") for _, text in speed_lines(document))


def test_a_link_is_estimated_by_its_lanes() -> None:
    machine = Machine(gpus=(Gpu(0, pcie=Pcie(gen=1, width=4, max_gen=4, max_width=16)),))
    split = Split(gpus=1, layerwise_from=1, chunk=2048)
    ceiling = prefill_ceiling(WORK, split, machine, None)
    assert ceiling.value == pytest.approx(2048 / (10e9 / (1.969e9 * 16 * 0.85)))
    assert not ceiling.measured


# --- what launches reached --------------------------------------------------------------------------------------


def reached(ratio: float, **changes: Any) -> Measured:
    values: dict[str, Any] = {"model": "m", "hardware": "f", "engine": "embedded", "what": "decode"}
    return Measured(**(values | {"measured": 50.0 * ratio, "predicted": 50.0, "at": 1.0} | changes))


def test_what_launches_reached_corrects_the_next_prediction() -> None:
    history = [reached(ratio, hardware=fingerprint(MACHINE)) for ratio in (0.5, 0.6, 0.9)]
    document = speed_document(
        "m", "embedded", WORK, split=Split(), machine=MACHINE, calibration=CALIBRATION, history=history
    )
    decode = document["decode"]
    assert decode["ceiling_tokens_per_s"] == pytest.approx(50.0)
    assert decode["expected_tokens_per_s"] == pytest.approx(30.0)
    assert decode["error"] == {"runs": 3, "median": 0.6, "lowest": 0.5, "highest": 0.9}
    assert document["prefill"]["error"] is None
    assert ("decode", "30 tokens/s expected: 3 run(s) reached 50% to 90% of the ceiling") in speed_lines(
        document
    )


@pytest.mark.parametrize(
    "other", [{"model": "n"}, {"hardware": "g"}, {"engine": "sglang"}, {"what": "prefill"}]
)
def test_only_launches_of_the_same_kind_count(other: dict[str, Any]) -> None:
    assert seen([reached(0.5), reached(0.9, **other)], "m", "f", "embedded", "decode") == seen(
        [reached(0.5)], "m", "f", "embedded", "decode"
    )


def test_launches_are_kept_and_damaged_lines_left_out(paths: Paths) -> None:
    first, second = reached(0.5, settings={"cpu-threads": "8"}), reached(0.7)
    add_measured(paths, first)
    for damage in (
        "",
        "{",
        "[]",
        '{"model": 1}',
        '{"model":"m","hardware":"f","engine":"e","what":"w","measured":NaN,"predicted":1}',
    ):
        with record_file(paths).open("a") as file:
            file.write(damage + "\n")
    add_measured(paths, second)
    assert read_measured(paths) == [first, second]


def test_of_very_many_launches_the_newest_are_kept(paths: Paths) -> None:
    record_file(paths).parent.mkdir(parents=True)
    add_measured(paths, reached(1.0))
    line = record_file(paths).read_text()
    record_file(paths).write_text(line * (KEPT + 50))
    add_measured(paths, reached(0.25))
    kept = read_measured(paths)
    assert len(kept) == KEPT
    assert kept[-1] == reached(0.25)


# --- what a token costs -----------------------------------------------------------------------------------------


def test_costs_by_headers() -> None:
    shape = ModelShape("MiniMaxM2ForCausalLM", 2, 8, 4, 2, 16, 32, 100, 64, experts=4, experts_per_token=1)
    work = work_of_checkpoint(shape, WeightBytes(4000, 300, 200, 50), "safetensors-fp8")
    assert (work.chosen_bytes, work.other_bytes, work.total_bytes) == (1000, 250, 4250)
    assert work.chosen_ops == 2 * 2 * 3 * 8 * 32
    assert work.other_ops == 2 * 2 * 8 * 16 * (4 + 2 + 2 + 4)  # query, key, value, output
    assert work.kernel == "fp8_block128"


def test_costs_by_the_catalogue() -> None:
    shape = CatalogueShape(
        layers=2,
        hidden=8,
        vocab=100,
        context_length=64,
        heads=4,
        kv_heads=2,
        head_dim=16,
        experts=4,
        experts_per_token=1,
        moe_intermediate=32,
    )
    work = work_of_shape(shape, {"experts": "bf16", "other": "bf16"})
    assert work is not None
    experts = 2 * 4 * 3 * 8 * 32 * 2
    others = 2 * (2 * 8 * 16 * 12 + 2 * 4 * (8 + 1) + 5 * 8 + 100 * 8)
    assert (work.expert_bytes, work.chosen_bytes, work.other_bytes) == (experts, experts // 4, others)
    assert work.chosen_ops == 2 * 2 * 3 * 8 * 32
    assert work_of_shape(shape, {}) is None


def test_a_plan_tells_its_speed_and_what_others_published(paths: Paths) -> None:
    save_calibration(paths, fingerprint(MACHINE), CALIBRATION)
    from kt_tui.catalog.published import Published

    rows = (Published("one card", "a guide", (2048,), (100.0,), (20.0,)),)
    entry = ModelEntry("tiny", format="safetensors-fp8", published=rows)
    shape = ModelShape("MiniMaxM2ForCausalLM", 2, 8, 4, 2, 16, 32, 100, 64, experts=4, experts_per_token=1)
    facts = ModelFacts(shape, WeightBytes(4 << 30, 0, 1 << 29, 1 << 29), "headers")
    plan = with_speed(plan_launch(entry, MACHINE, facts=facts), entry, MACHINE, paths)
    assert plan.speed["bytes_per_token"] == 2 << 30
    assert plan.speed["decode"]["ceiling_tokens_per_s"] == pytest.approx(100e9 / (2 << 30))
    told = "one card: prefill 100 tokens/s, decode 20 tokens/s at 2048 prompt tokens (a guide)"
    assert ("published", told) in speed_lines(plan.speed)


def test_a_model_of_unknown_size_is_not_predicted(paths: Paths) -> None:
    entry = ModelEntry("nobody")
    plan = with_speed(plan_launch(entry, MACHINE), entry, MACHINE, paths)
    assert plan.speed == {"note": "not predicted: the model's size is not known"}
    assert speed_lines(plan.speed) == []
