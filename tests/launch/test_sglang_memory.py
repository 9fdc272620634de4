"""Memory of the sglang engine by shape: against formulas written out here, and what is said of the seed machines."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kt_tui.catalog import find_model
from kt_tui.catalog.shape import ModelShape
from kt_tui.config import load_config
from kt_tui.hardware import Machine, machine_from_json
from kt_tui.hardware.machine import Gpu
from kt_tui.launch.sglang_memory import (
    HEADROOM,
    LOWERED,
    Sizes,
    Stored,
    gpu_excess,
    gpu_parts,
    host_parts,
    largest_gpu_experts,
    sglang_memory,
    ways_to_fit,
)
from kt_tui.launch.sglang_outlook import sglang_outlook
from kt_tui.paths import user_paths

MACHINES = Path(__file__).parents[1] / "machines"
GIB = 1 << 30
# config.json of MiniMax-M2.1: 62 layers, 3072 wide, 48 and 8 heads of 128, 256 experts of 1536, top 8.
MINIMAX = Stored(
    ModelShape(
        layers=62,
        hidden=3072,
        vocab=200064,
        context_length=196608,
        heads=48,
        kv_heads=8,
        head_dim=128,
        experts=256,
        experts_per_token=8,
        moe_intermediate=1536,
    ),
    "fp8",
    "fp8",
)
FP8 = 1 + 4 / (128 * 128)
EXPERT = 3 * 3072 * 1536 * FP8


def entry(name: str):
    paths = user_paths(os.environ)
    return find_model(name, paths, load_config(paths, os.environ))


def seed_machine(name: str) -> Machine:
    return machine_from_json(json.loads((MACHINES / f"{name}.json").read_text("utf-8")))


def cards(*free: int | None) -> Machine:
    gpus = tuple(Gpu(index=i, memory_total=v, memory_free=v) for i, v in enumerate(free))
    return dataclasses.replace(seed_machine("epyc-9355-1x5090"), gpus=gpus)


def test_the_parts_on_one_gpu():
    parts = gpu_parts(MINIMAX, Sizes(gpu_experts=10, total_tokens=1000, chunk=2048, layerwise=True))
    attention = 62 * 3072 * (2 * 48 * 128 + 2 * 8 * 128)
    sixteen_bit = 2 * (2 * 200064 * 3072 + 62 * 256 * 3073 + 125 * 3072)
    assert parts["weights"] == pytest.approx(attention * FP8 + sixteen_bit, abs=10)
    assert parts["experts"] == pytest.approx(62 * 10 * EXPERT, rel=1e-9)
    assert parts["kv cache"] == 1000 * 62 * 2 * 8 * 128 * 2
    # A token: three rows of the stream, and for 8 experts gate, up, product and output, 2 bytes each.
    assert parts["prefill"] == 2048 * 2 * (3 * 3072 + 8 * (3 * 1536 + 3072))
    assert parts["layerwise prefill"] == pytest.approx(3.62e9, rel=0.005)  # what its guide says


def test_more_gpus_divide_all_but_routers_and_norms():
    one, four = (
        gpu_parts(MINIMAX, Sizes(tensor_parallel=n, gpu_experts=8, total_tokens=999)) for n in (1, 4)
    )
    whole = 2 * (62 * 256 * 3073 + 125 * 3072)
    assert four["weights"] == pytest.approx((one["weights"] - whole) / 4 + whole, abs=4)
    assert four["experts"] == pytest.approx(one["experts"] / 4, abs=4)
    assert four["kv cache"] == one["kv cache"] // 4
    sixteen = gpu_parts(MINIMAX, Sizes(tensor_parallel=16, total_tokens=999))
    assert sixteen["kv cache"] == one["kv cache"] // 8  # heads of the cache are copied, not split


def test_the_latent_cache_is_on_every_gpu():
    shape = entry("dsr1").shape
    assert shape is not None
    model = Stored(shape, "fp8", "fp8")
    one, two = (gpu_parts(model, Sizes(tensor_parallel=n, total_tokens=1000))["kv cache"] for n in (1, 2))
    assert one == two == 61 * (512 + 64) * 2 * 1000
    assert gpu_parts(model, Sizes(total_tokens=1000, kv_bytes=1))["kv cache"] == one // 2


def test_windowed_layers_keep_their_window_and_linear_ones_a_state():
    shape = dataclasses.replace(MINIMAX.shape, sliding_layers=31, sliding_window=128)
    parts = gpu_parts(Stored(shape, "fp8", "fp8"), Sizes(total_tokens=10_000, running=2))
    assert parts["kv cache"] == 2 * 8 * 128 * 2 * (31 * 10_000 + 31 * 256)
    linear = dataclasses.replace(
        MINIMAX.shape,
        linear_layers=60,
        linear_key_heads=16,
        linear_value_heads=32,
        linear_key_dim=128,
        linear_value_dim=64,
        linear_conv=4,
    )
    parts = gpu_parts(Stored(linear, "fp8", "fp8"), Sizes(total_tokens=10_000, running=3))
    state = 4 * 32 * 128 * 64 + 2 * 4 * (2 * 16 * 128 + 32 * 64)
    assert parts["kv cache"] == 2 * 2 * 8 * 128 * 2 * 10_000 + 60 * 3 * state


def test_main_memory_holds_all_experts_whatever_the_gpu_holds():
    none, many = (host_parts(MINIMAX, Sizes(gpu_experts=n), 1) for n in (0, 200))
    assert none == many
    assert none["experts"] == pytest.approx(62 * 256 * EXPERT, rel=1e-9)
    assert host_parts(MINIMAX, Sizes(method="AMXINT4"), 1)["experts"] == 62 * 256 * 3 * 3072 * 1536 // 2


def test_scratch_grows_with_the_chunk():
    small, large = (host_parts(MINIMAX, Sizes(chunk=n, pools=2), 1)["prefill scratch"] for n in (4096, 32768))
    inner, rows = 768, 4096 * 8 + 256 * 32
    pool = 2 * 4096 * 8 * (2 * 3072 + 2 * inner) + rows * (2 * (3072 + inner) + 4 * (2 * inner + 3072))
    assert small == 2 * pool
    assert 20 * GIB < large < 24 * GIB


@pytest.mark.parametrize("fraction", [None, 0.5])
def test_the_most_experts_fit_and_one_more_does_not(fraction):
    sizes = Sizes(total_tokens=20_000, chunk=4096, static_fraction=fraction)
    machine = cards(32 * GIB)
    most = largest_gpu_experts(MINIMAX, sizes, machine)
    assert most is not None
    assert 0 < most < 256
    for experts, fits in ((most, True), (most + 1, False)):
        parts = gpu_parts(MINIMAX, sizes.lowered("gpu-experts", experts))
        static = parts["weights"] + parts["experts"] + parts["kv cache"]
        room = sum(parts.values()) + HEADROOM <= 32 * GIB and (fraction is None or static <= 16 * GIB)
        assert room is fits


def test_nothing_is_solved_for_unknown_or_missing_gpus():
    for machine in (cards(), cards(None), cards(32 * GIB)):
        sizes = Sizes(tensor_parallel=2, total_tokens=100)
        assert gpu_excess(MINIMAX, sizes, machine) is None
        assert largest_gpu_experts(MINIMAX, sizes, machine) is None
        assert ways_to_fit(MINIMAX, sizes, machine) == ()


def test_experts_are_lowered_first_and_alone_where_that_suffices():
    sizes = Sizes(gpu_experts=256, total_tokens=20_000, chunk=4096)
    (way,) = ways_to_fit(MINIMAX, sizes, cards(32 * GIB))
    assert way.option == "gpu-experts"
    assert way.value == largest_gpu_experts(MINIMAX, sizes, cards(32 * GIB))
    assert way.frees == pytest.approx(62 * (256 - way.value) * EXPERT, rel=1e-6)


def test_a_chunk_is_lowered_no_further_than_the_cache_needs():
    sizes = Sizes(total_tokens=100_000, chunk=32768, static_fraction=0.8, layerwise=True)
    machine = cards(32 * GIB)
    ways = {way.option: way.value for way in ways_to_fit(MINIMAX, sizes, machine)}
    assert set(ways) == {"chunked-prefill-size", "max-total-tokens"}
    lowered = sizes
    for option, value in ways.items():
        lowered = lowered.lowered(option, value)
    assert (gpu_excess(MINIMAX, lowered, machine) or 0) <= 0
    for option, value in ways.items():
        assert (gpu_excess(MINIMAX, lowered.lowered(option, value + 1), machine) or 0) > 0


def test_a_model_that_no_size_makes_fit_has_no_way():
    assert ways_to_fit(MINIMAX, Sizes(total_tokens=100_000), cards(6 * GIB)) == ()


@pytest.mark.parametrize("model", ["m2.1", "dsr1", "k2"])
@pytest.mark.parametrize("name", sorted(path.stem for path in MACHINES.glob("*.json")))
def test_every_seed_machine_is_told_what_fits(name, model):
    known, machine = entry(model), seed_machine(name)
    found = sglang_outlook(known.shape, known.formats, known.defaults, machine)
    assert found is not None
    memory, told = found
    assert told
    if not machine.gpus:
        assert "needs an NVIDIA GPU" in told[0]
    # All experts in one machine's memory: 209, 609 and 532 GiB, or half of the second's in four bits.
    enough = {"m2.1": 240 * GIB, "dsr1": 350 * GIB, "k2": 620 * GIB}[model]
    available = memory.host.available
    assert available is not None
    assert ((memory.host.free_after or 0) >= 0) is (available > enough), (available, memory.host.parts)
    assert any("main memory lacks" in text for text in told) is (available <= enough)


def test_the_plans_of_the_seed_machines():
    def told(name: str, model: str) -> str:
        known = entry(model)
        found = sglang_outlook(known.shape, known.formats, known.defaults, seed_machine(name))
        assert found is not None
        return "; ".join(found[1])

    assert "--max-total-tokens" in told("epyc-9355-1x5090", "m2.1")  # 25 GB of cache asked for
    assert "copies of up to" in told("epyc-9355-2x5090", "m2.1")
    assert "copies of up to" in told("xeon-6454s-4090d-382gb", "dsr1")  # its guide: one expert on 24 GB
    assert "use larger GPUs" in told("xeon-6454s-4090d-1tb", "k2")  # its guide: 48 GB


@given(
    st.builds(
        Sizes,
        tensor_parallel=st.integers(1, 16),
        gpu_experts=st.integers(0, 400),
        total_tokens=st.integers(0, 10**7),
        chunk=st.integers(0, 10**6),
        running=st.integers(0, 1000),
        kv_bytes=st.sampled_from([1, 2]),
        layerwise=st.booleans(),
        method=st.sampled_from(["FP8", "AMXINT4", "AMXINT8", ""]),
        pools=st.integers(0, 9),
        static_fraction=st.none() | st.floats(0.01, 1),
    ),
    st.lists(st.none() | st.integers(0, 200 * GIB), max_size=4),
)
@settings(max_examples=200, deadline=None)
def test_any_sizes_on_any_gpus_give_a_plan_that_grows_with_them(sizes, free):
    machine = cards(*free)
    plan = sglang_memory(MINIMAX, sizes, machine)
    assert all(value >= 0 and isinstance(value, int) for gpu in plan.gpus for value in gpu.parts.values())
    before = sum(gpu_parts(MINIMAX, sizes).values())
    for option in LOWERED:
        assert sum(gpu_parts(MINIMAX, sizes.lowered(option, sizes.value(option) + 1)).values()) >= before
    for way in ways_to_fit(MINIMAX, sizes, machine):
        assert way.value < sizes.value(way.option)
        assert way.frees >= 0
