"""Conversions of ggml's types at load: exact where they claim it, else within what the target's rounding allows."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from engine.weights.convert import SLICE_NUMBERS, Converter, common_format
from engine.weights.formats import BY_GGUF, CONVERTED, KernelFormat, dequantize
from engine.weights.loader import Matrix
from engine.weights.tensor import MappedFile, StoredTensor
from tests.engine.ggml_blocks import random_blocks

EXACT = {"Q5_0", "IQ4_NL", "Q3_K", "IQ3_S", "IQ1_S", "IQ1_M", "TQ1_0", "TQ2_0"}
STEP_ROUNDED = {"IQ4_XS", "IQ2_XXS", "IQ3_XXS"}
NEAREST = {"Q5_1", "Q2_K", "IQ2_XS", "IQ2_S"}


def matrix_of(
    path: Path, kind: str, raw: NDArray[np.uint8], columns: int, name: str = "blk.0.x.weight"
) -> Matrix:
    path.write_bytes(raw.tobytes())
    stored = StoredTensor(name, MappedFile(path), kind, (raw.shape[0], columns), 0, raw.size)
    return Matrix(stored, BY_GGUF[kind], raw.shape[0], columns, None)


def values_of(kind: str, raw: NDArray[np.uint8]) -> NDArray[np.float64]:
    found = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind])
    return np.asarray(found, dtype=np.float64)


def converted(matrix: Matrix, to: KernelFormat | None = None) -> tuple[NDArray[np.float64], str]:
    """The values after the conversion, and the notice."""
    converter = Converter()
    kept = to or matrix.kept
    ((data, scale),) = converter.packable([matrix], [kept])
    converter.close()
    assert scale is None
    found = dequantize(BY_GGUF[kept.upper()], data, matrix.rows, matrix.columns)
    (notice,) = converter.notices
    return found.astype(np.float64), notice


def test_every_type_that_is_converted_is_checked_here():
    assert {row.name for row in CONVERTED} == EXACT | STEP_ROUNDED | NEAREST | {"F16", "F64", "MXFP4"}


@pytest.mark.parametrize("kind", sorted(EXACT))
def test_exact_conversions_change_no_number(tmp_path, kind):
    raw = random_blocks(kind, np.random.default_rng(1), 37, 768)
    found, notice = converted(matrix_of(tmp_path / "m", kind, raw, 768))
    np.testing.assert_array_equal(found, values_of(kind, raw))
    assert np.abs(found).max() > 0
    assert notice.startswith(f"1 tensor of type {kind} is kept as ")
    assert notice.endswith(", exactly")


@pytest.mark.parametrize("kind", sorted(STEP_ROUNDED))
def test_conversions_with_a_rounded_step_are_off_by_its_last_bit(tmp_path, kind):
    raw = random_blocks(kind, np.random.default_rng(2), 37, 768)
    wanted = values_of(kind, raw)
    found, notice = converted(matrix_of(tmp_path / "m", kind, raw, 768))
    # Half a unit of float16's last place: 2^-11 of the step, or 2^-25 where it is subnormal, and 127 steps at most.
    assert (np.abs(found - wanted) <= np.abs(wanted) * 2.0**-11 + 127 * 2.0**-25).all()
    assert not np.array_equal(found, wanted)
    assert f"of type {kind} is kept as int8 with one scale for 32 columns, error 0.0" in notice


@pytest.mark.parametrize("kind", sorted(NEAREST))
def test_other_conversions_round_to_the_nearest_of_255_steps(tmp_path, kind):
    raw = random_blocks(kind, np.random.default_rng(3), 37, 768)
    wanted = values_of(kind, raw)
    found, notice = converted(matrix_of(tmp_path / "m", kind, raw, 768))
    peaks = np.repeat(np.abs(wanted).reshape(37, -1, 32).max(2), 32, axis=1)
    # Half a step; the step is off by 2^-11 of itself, which shifts the largest numbers.
    assert (np.abs(found - wanted) <= peaks * (0.5 / 127 + 2.0**-11) * 1.001).all()
    error = float(notice.rpartition("error ")[2].removesuffix(" %")) / 100
    measured = np.sqrt(np.square(found - wanted).sum() / np.square(wanted).sum())
    assert 0.001 < measured < 0.01
    assert error == pytest.approx(measured, rel=0.1)


def test_mxfp4_goes_to_the_kernels_own_layout_exactly(tmp_path):
    raw = random_blocks("MXFP4", np.random.default_rng(4), 5, 96)
    matrix = matrix_of(tmp_path / "m", "MXFP4", raw, 96)
    converter = Converter()
    ((data, scale),) = converter.packable([matrix], ["mxfp4"])
    assert converter.notices == []  # nothing changed that a user could want to know of
    assert scale is not None
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
    pairs = data.reshape(5, 48)
    codes = np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(5, 96)
    found = table[codes] * np.repeat(2.0 ** (scale.astype(np.float64) - 127), 32, axis=1)
    np.testing.assert_array_equal(found, values_of("MXFP4", raw))


@pytest.mark.parametrize(("kind", "dtype"), [("F16", np.float16), ("F64", np.float64)])
def test_floats_become_float32(tmp_path, kind, dtype):
    wanted = np.random.default_rng(5).normal(size=(7, 33)).astype(dtype)
    matrix = matrix_of(tmp_path / "m", kind, wanted.view(np.uint8).reshape(7, -1), 33)
    found, notice = converted(matrix)
    np.testing.assert_array_equal(found, wanted.astype(np.float32))
    assert ("exactly" in notice) == (kind == "F16")


@pytest.mark.parametrize(
    ("kind", "to"),
    [("Q4_0", "q8_0"), ("TQ1_0", "q8_0"), ("TQ2_0", "q8_0"), ("Q4_K", "q5_k"), ("MXFP4", "q8_0")],
)
def test_formats_that_hold_another_take_it_exactly(tmp_path, kind, to):
    raw = random_blocks(kind, np.random.default_rng(6), 5, 512)
    found, notice = converted(matrix_of(tmp_path / "m", kind, raw, 512), to)
    np.testing.assert_array_equal(found, values_of(kind, raw))
    assert notice.endswith("exactly")


@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K", "Q4_1", "BF16", "Q5_K"])
def test_formats_with_nothing_in_common_meet_in_8_bits(tmp_path, kind):
    rng = np.random.default_rng(7)
    if kind == "BF16":
        raw = gguf.quants.quantize(
            rng.normal(size=(5, 512)).astype(np.float32), gguf.GGMLQuantizationType.BF16
        )
    else:
        raw = random_blocks(kind, rng, 5, 512)
    found, notice = converted(matrix_of(tmp_path / "m", kind, raw, 512), "q8_0")
    wanted = values_of(kind, raw)
    peaks = np.repeat(np.abs(wanted).reshape(5, -1, 32).max(2), 32, axis=1)
    assert (np.abs(found - wanted) <= peaks * (0.5 / 127 + 2.0**-11) * 1.001).all()
    assert "error 0." in notice


@pytest.mark.parametrize(
    ("kinds", "columns", "common"),
    [
        (["Q4_K"], 256, "q4_k"),
        (["Q4_K", "Q5_K"], 256, "q5_k"),
        (["Q4_0", "Q8_0", "Q5_0", "IQ4_NL", "TQ2_0"], 256, "q8_0"),
        (["Q3_K", "Q6_K", "IQ3_S"], 256, "q6_k"),
        (["Q4_K", "Q6_K"], 256, "q8_0"),
        (["MXFP4", "Q8_0"], 32, "q8_0"),
        (["F16", "BF16", "F32"], 33, "f32"),
        (["BF16", "Q8_0"], 64, "q8_0"),
    ],
)
def test_the_common_format_of_mixed_matrices(kinds, columns, common):
    assert common_format([BY_GGUF[kind] for kind in kinds], columns) == common


def test_several_matrices_are_joined_in_many_slices(tmp_path):
    rng = np.random.default_rng(8)
    rows, columns = [700, 300, 41], 1024
    assert rows[0] * columns > 2 * SLICE_NUMBERS
    raws = [random_blocks(kind, rng, count, columns) for kind, count in zip(("Q5_0",) * 3, rows, strict=True)]
    matrices = [
        matrix_of(tmp_path / str(n), "Q5_0", raw, columns, f"blk.{n}.x.weight[{n}]")
        for n, raw in enumerate(raws)
    ]
    converter = Converter()
    data, scale = converter.joined(matrices, "q8_0")
    converter.close()
    assert scale is None
    wanted = np.concatenate([values_of("Q5_0", raw) for raw in raws])
    np.testing.assert_array_equal(dequantize(BY_GGUF["Q8_0"], data, sum(rows), columns), wanted)
    assert converter.notices == [
        "3 tensors of type Q5_0 are kept as int8 with one scale for 32 columns, exactly"
    ]


def test_joined_matrices_of_mxfp4_keep_their_scales_in_order(tmp_path):
    rng = np.random.default_rng(9)
    raws = [random_blocks("MXFP4", rng, count, 64) for count in (3, 5)]
    matrices = [matrix_of(tmp_path / str(n), "MXFP4", raw, 64) for n, raw in enumerate(raws)]
    data, scale = Converter().joined(matrices, "mxfp4")
    parts = [Converter().packable([matrix], ["mxfp4"])[0] for matrix in matrices]
    np.testing.assert_array_equal(data, np.concatenate([part for part, _ in parts]))
    np.testing.assert_array_equal(scale, np.concatenate([part for _, part in parts]))


def test_stacked_experts_count_as_one_tensor(tmp_path):
    raw = random_blocks("Q5_0", np.random.default_rng(10), 4, 64)
    converter = Converter()
    for expert in range(3):
        matrix = matrix_of(tmp_path / str(expert), "Q5_0", raw, 64, f"blk.0.ffn_up_exps.weight[{expert}]")
        converter.packable([matrix], ["q8_0"])
    assert converter.notices[0].startswith("1 tensor of type Q5_0 is")


@pytest.mark.parametrize("bits", [0x7C00, 0xFC00, 0x7E00])
@pytest.mark.parametrize("kind", ["Q5_0", "IQ4_XS", "Q2_K", "Q3_K", "TQ1_0"])
def test_a_scale_that_is_not_finite_is_told_with_its_row(tmp_path, kind, bits):
    raw = random_blocks(kind, np.random.default_rng(11), 9, 512)
    at = {"Q5_0": 0, "IQ4_XS": 0, "Q2_K": 80, "Q3_K": 108, "TQ1_0": 52}[kind]
    raw[6, at : at + 2] = np.array([bits], np.uint16).view(np.uint8)
    converter = Converter()
    with pytest.raises(ValueError, match=rf"blk\.0\.x\.weight of type {kind} .* not finite in row 6"):
        converter.packable([matrix_of(tmp_path / "m", kind, raw, 512)], [BY_GGUF[kind].kept])
