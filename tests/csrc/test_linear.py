"""Linears of every format, numeric mode and instruction set against the float64 oracle."""

from __future__ import annotations

import os

import kernel_cases as cases
import kernel_oracle as oracle
import numpy as np
import pytest
import torch

from engine import _csrc
from engine.cpu import Linear, Team, available_isas


@pytest.fixture(params=available_isas())
def team(request: pytest.FixtureRequest) -> _csrc.Team:
    return _csrc.Team(_csrc.usable_cores()[:2], request.param)


@pytest.fixture
def rng() -> np.random.Generator:
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed}")
    return np.random.default_rng(seed)


@pytest.mark.parametrize("mode", ["exact", "fast"])
@pytest.mark.parametrize("fmt", oracle.FORMATS)
def test_every_shape_and_number_of_tokens_stays_within_the_bound(team, rng, fmt, mode):
    for rows, cols in cases.shapes(fmt):
        assert cases.linear_error(_csrc, team, rng, fmt, mode, rows, cols) <= 1, (rows, cols)


@pytest.mark.parametrize("fmt", ["fp8_block128", "fp8_channel", "mxfp8"])
def test_all_finite_fp8_codes_are_exact(team, fmt):
    assert cases.fp8_codes_error(_csrc, team, fmt) == 0


def test_oracle_agrees_with_torch_about_fp8():
    codes = np.arange(256, dtype=np.uint8)
    expected = torch.from_numpy(codes).view(torch.float8_e4m3fn).double().numpy()
    np.testing.assert_array_equal(oracle.fp8_e4m3(codes), expected)


def test_oracle_agrees_with_torch_about_bf16(rng):
    x = rng.standard_normal(1000).astype(np.float32)
    expected = torch.from_numpy(x).bfloat16().double().numpy()
    np.testing.assert_array_equal(oracle.bf16_value(oracle.bf16_round(x)), expected)


@pytest.mark.parametrize("fmt", [fmt for fmt in oracle.BLOCK_FORMATS if fmt.startswith("q")])
def test_oracle_agrees_with_the_gguf_package(rng, fmt):
    gguf = pytest.importorskip("gguf")
    weight = oracle.random_weight(rng, fmt, 5, 768)
    kind = gguf.GGMLQuantizationType[fmt.upper() if fmt[-1] != "k" else fmt[:-1].upper() + "K"]
    value = gguf.dequantize(weight.data.reshape(5, -1), kind)
    np.testing.assert_allclose(value, weight.value, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("fmt", oracle.FORMATS)
def test_results_do_not_depend_on_the_number_of_threads(rng, fmt, isa):
    cols = 512 if oracle.WHOLE_BLOCKS.get(fmt, 1) > 32 else 288
    weight = oracle.random_weight(rng, fmt, 150, cols)
    cores = _csrc.usable_cores()
    linears = [
        cases.make_linear(_csrc, _csrc.Team([cores[i % len(cores)] for i in range(n)], isa), weight, "exact")
        for n in (1, 2, 3)
    ]
    for tokens in (1, 3, 40):
        x = rng.standard_normal((tokens, cols)).astype(np.float32)
        first, *others = (linear.forward(x) for linear in linears)
        assert all(np.array_equal(first, other) for other in others)


def test_two_numa_nodes_give_the_same_bits(rng):
    weight = oracle.random_weight(rng, "q8_0", 150, 96)
    cpu = _csrc.usable_cores()[0][0]
    isa = available_isas()[-1]
    one = cases.make_linear(_csrc, _csrc.Team([(cpu, 0)], isa), weight, "exact")
    # The second node does not exist here: binding to it fails, which must cost speed only.
    two = cases.make_linear(_csrc, _csrc.Team([(cpu, 0), (cpu, 0), (cpu, 1)], isa), weight, "exact")
    for tokens in (1, 30):
        x = rng.standard_normal((tokens, 96)).astype(np.float32)
        np.testing.assert_array_equal(one.forward(x), two.forward(x))


@pytest.mark.parametrize("isa", available_isas())
def test_fast_mode_error_is_small_and_not_zero(rng, isa):
    weight = oracle.random_weight(rng, "q8_0", 64, 1024)
    team = _csrc.Team(_csrc.usable_cores(), isa)
    x = rng.standard_normal((4, 1024)).astype(np.float32)
    expected = x @ weight.value.T
    error = np.linalg.norm(cases.make_linear(_csrc, team, weight, "fast").forward(x) - expected)
    assert 1e-5 < error / np.linalg.norm(expected) < 0.02


def test_largest_int8_products_do_not_overflow(team):
    # All weights -128 or 15, all activations at the end of their range: the largest sums that can occur.
    d = np.full((16, 1), 1, np.float16).view(np.uint8)
    q8 = np.concatenate([d, np.full((16, 32), 0x80, np.uint8)], axis=1)
    q4 = np.concatenate([d, np.zeros((16, 2), np.uint8), np.full((16, 16), 0xFF, np.uint8)], axis=1)
    for sign in (1, -1):
        x = np.full((5, 32), sign * 127, np.float32)
        for fmt, data, value in (("q8_0", q8, -128), ("q4_1", q4, 15)):
            linear = _csrc.Linear(team, fmt, data.reshape(-1), None, 16, 32, "fast")
            np.testing.assert_array_equal(linear.forward(x), np.full((5, 16), sign * 127 * 32 * value))


def test_nan_and_infinity_of_bf16_weights_and_activations_propagate(team):
    weight = torch.ones(3, 8, dtype=torch.bfloat16)
    weight[0, 0], weight[1, 1] = float("nan"), float("inf")
    linear = _csrc.Linear(team, "bf16", weight.view(torch.uint8).numpy().reshape(-1), None, 3, 8, "exact")
    y = linear.forward(np.ones((1, 8), np.float32))
    assert np.isnan(y[0, 0])
    assert np.isinf(y[0, 1])
    assert y[0, 2] == 8
    x = np.ones((1, 8), np.float32)
    x[0, 5] = np.nan
    assert np.isnan(linear.forward(x)).all()


def test_torch_interface_takes_tensors_of_any_element_type(rng):
    team = Team(1)
    x = torch.randn(3, 64)
    plain = torch.randn(48, 64)
    torch.testing.assert_close(Linear(team, "f32", plain, rows=48, cols=64)(x), x @ plain.T)
    half = plain.bfloat16()
    tolerance = {"rtol": 2e-2, "atol": 1e-1}
    torch.testing.assert_close(
        Linear(team, "bf16", half, rows=48, cols=64)(x), x @ half.float().T, **tolerance
    )
    eight = plain.to(torch.float8_e4m3fn)
    linear = Linear(team, "fp8_block128", eight, torch.full((1, 1), 2.0), rows=48, cols=64)
    torch.testing.assert_close(linear(x), x @ (2 * eight.float()).T, **tolerance)


def test_inputs_that_are_not_contiguous_are_taken():
    plain = torch.randn(16, 32)
    x = torch.randn(32, 5).T
    linear = Linear(Team(1), "f32", plain, rows=16, cols=32)
    torch.testing.assert_close(linear(x), x @ plain.T)


def test_a_read_only_memory_map_is_packed_in_place(tmp_path, rng):
    weight = oracle.random_weight(rng, "q4_1", 20, 64)
    path = tmp_path / "weights"
    weight.data.tofile(path)
    linear = Linear(Team(1), "q4_1", np.memmap(path, np.uint8, mode="r"), rows=20, cols=64)
    x = torch.randn(2, 64)
    np.testing.assert_allclose(linear(x).numpy(), x.double().numpy() @ weight.value.T, rtol=1e-3, atol=1e-3)


def test_no_tokens_give_no_rows():
    assert Linear(Team(1), "f32", torch.ones(4, 4), rows=4, cols=4)(torch.ones(0, 4)).shape == (0, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": np.zeros(63, np.uint8)}, "must be 64 bytes"),
        ({"data": np.zeros(64, np.int8)}, "must be raw bytes"),
        ({"data": np.zeros(128, np.uint8)[::2]}, "must be contiguous"),
        ({"scale": None}, "needs scales"),
        ({"scale": np.ones((1, 2), np.float32)}, "must have shape"),
        ({"scale": np.ones((1, 1), np.float64)}, "must have dtype float32"),
        ({"scale": np.full((1, 1), np.inf, np.float32)}, "not finite"),
        ({"data": np.full(64, 0x7F, np.uint8)}, "row 0, column 0 is not a number"),
        (
            {"data": np.where(np.arange(64) == 21, 0xFF, 8).astype(np.uint8)},
            "row 2, column 5 is not a number",
        ),
        ({"mode": "quick"}, "mode must be"),
        ({"fmt": "q3_k"}, "unknown weight format"),
        ({"fmt": "q8_0", "scale": None}, "blocks of 32 columns"),
        ({"rows": 0}, "rows and columns"),
    ],
)
def test_a_wrong_weight_is_refused_with_its_reason(team, change, message):
    given = {
        "fmt": "fp8_block128",
        "data": np.zeros(64, np.uint8),
        "scale": np.ones((1, 1), np.float32),
        "rows": 8,
        "mode": "exact",
    } | change
    with pytest.raises(ValueError, match=message):
        _csrc.Linear(team, given["fmt"], given["data"], given["scale"], given["rows"], 8, given["mode"])


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((2, 9), np.float32), "must have shape"),
        (np.zeros(8, np.float32), "must have shape"),
        (np.zeros((2, 8)), "must have dtype float32"),
        (np.zeros((2, 16), np.float32)[:, ::2], "must be contiguous"),
    ],
)
def test_wrong_activations_are_refused_with_their_reason(team, x, message):
    linear = _csrc.Linear(team, "f32", np.zeros(4 * 8 * 4, np.uint8), None, 4, 8, "exact")
    with pytest.raises(ValueError, match=message):
        linear.forward(x)


@pytest.mark.parametrize(
    ("fmt", "damage", "message"),
    [
        ("int4_g32", ("scale", 3, 0x7F80), "int4_g32 scale at row 1, block 0 is no number"),
        ("int4_g128", ("scale", 25, 0x7C00), "int4_g128 scale at row 8, block 1 is no number"),
        ("mxfp4", ("scale", 4, 255), "mxfp4 scale at row 1, block 1 is no number"),
        ("mxfp8", ("scale", 4, 255), "MXFP8 scale at row 1, block 1"),
        ("q4_0", ("data", 18 * 4 + 1, 0x7C), "q4_0 scale at row 1, block 1 is not finite"),
        ("q5_k", ("data", 176 + 3, 0x7C), "q5_k scale at row 1, block 0 is not finite"),
        ("q6_k", ("data", 210 + 209, 0x7C), "q6_k scale at row 1, block 0 is not finite"),
    ],
)
def test_a_scale_that_is_no_number_is_told_with_its_place(rng, fmt, damage, message):
    cols = {"int4_g128": 256, "q5_k": 256, "q6_k": 256}.get(fmt, 96)
    weight = oracle.random_weight(rng, fmt, 17, cols)
    part, index, value = damage
    getattr(weight, part).reshape(-1)[index] = value
    team = _csrc.Team(_csrc.usable_cores()[:1], "scalar")
    with pytest.raises(ValueError, match=message):
        cases.make_linear(_csrc, team, weight, "exact")


@pytest.mark.parametrize("isa", available_isas())
def test_every_kernel_can_be_measured_by_itself(isa):
    team = Team(1, isa=isa)
    for fmt in (*oracle.FORMATS, "int8", "int4"):
        assert team.multiply_alone(fmt, "exact", 256, 1) > 0
        assert team.multiply_alone(fmt, "fast", 256, 33) > 0
    with pytest.raises(ValueError, match="no kernel for this format"):
        team.multiply_alone("q4_k", "fast", 96, 1)
