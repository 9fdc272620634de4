import gguf
import numpy as np
import pytest
import torch

from engine.weights.formats import (
    BF16,
    F16,
    F32,
    FP8,
    FP8_ROWS,
    Q4_0,
    Q4_1,
    Q4_K,
    Q5_K,
    Q6_K,
    Q8_0,
    dequantize,
)
from tests.csrc.int_oracle import MAKERS


@pytest.mark.parametrize(
    ("stored", "kind"), [(Q4_0, "Q4_0"), (Q4_1, "Q4_1"), (Q8_0, "Q8_0"), (F16, "F16"), (BF16, "BF16")]
)
def test_ggml_formats_agree_with_the_reference(stored, kind):
    values = np.random.default_rng(1).normal(size=(5, 96)).astype(np.float32) * 10
    number = gguf.GGMLQuantizationType[kind]
    raw = gguf.quants.quantize(values, number).view(np.uint8)
    assert raw.size == 5 * stored.nbytes(96)
    expected = gguf.quants.dequantize(raw, number)
    np.testing.assert_array_equal(dequantize(stored, raw, 5, 96), expected)


@pytest.mark.parametrize(("stored", "maker"), [(Q4_K, "q4_k"), (Q5_K, "q5_k"), (Q6_K, "q6_k")])
def test_blocks_of_256_mean_what_their_layout_says(stored, maker):
    raw, _, expected, terms = MAKERS[maker](np.random.default_rng(4), 7, 768)
    assert raw.size == 7 * stored.nbytes(768)
    found = dequantize(stored, raw, 7, 768)
    # Three roundings to float32 at most, each of terms no larger than these.
    assert (np.abs(found - expected) <= 3 * 2.0**-24 * terms).all()


def test_float32_is_handed_on():
    values = np.random.default_rng(1).normal(size=(2, 3)).astype(np.float32)
    np.testing.assert_array_equal(dequantize(F32, values.view(np.uint8), 2, 3), values)


def test_every_fp8_code_has_the_value_that_torch_gives_it():
    raw = np.arange(256, dtype=np.uint8)
    expected = torch.from_numpy(raw).view(torch.float8_e4m3fn).float().numpy()
    np.testing.assert_array_equal(dequantize(FP8, raw, 1, 256)[0], expected)


@pytest.mark.parametrize(("rows", "columns"), [(128, 128), (160, 300), (5, 129), (576, 64)])
def test_fp8_scales_belong_to_blocks_of_128_with_partial_ones_at_the_edges(rows, columns):
    random = np.random.default_rng(2)
    raw = random.integers(0, 0x7F, (rows, columns), dtype=np.uint8)
    scale = random.uniform(0.5, 2, (-(-rows // 128), -(-columns // 128))).astype(np.float32)
    plain, scaled = dequantize(FP8, raw, rows, columns), dequantize(FP8, raw, rows, columns, scale)
    for row in range(0, rows, 31):
        for column in range(0, columns, 17):
            assert scaled[row, column] == plain[row, column] * scale[row // 128, column // 128]


def test_fp8_scales_of_rows():
    random = np.random.default_rng(3)
    raw = random.integers(0, 0x7F, (5, 33), dtype=np.uint8)
    scale = random.uniform(0.5, 2, 5).astype(np.float32)
    expected = dequantize(FP8, raw, 5, 33) * scale.reshape(5, 1)
    np.testing.assert_array_equal(dequantize(FP8_ROWS, raw, 5, 33, scale), expected)
