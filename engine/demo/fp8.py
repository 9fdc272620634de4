"""FP8 e4m3 with one float32 scale for each block of 128x128 weights, as DeepSeek and MiniMax publish it."""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 128
E4M3_MAX = 448.0


def quantize_blocks(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Quantise a matrix block by block; blocks at the right and lower edge may be partial.

    Args:
        weight: float32 [out, in].

    Returns:
        float8_e4m3fn [out, in], and float32 [ceil(out / 128), ceil(in / 128)]: multiply by the scale to get the
        weight back (the ``weight_scale_inv`` of those checkpoints).
    """
    rows, columns = weight.shape
    row_blocks, column_blocks = -(-rows // BLOCK), -(-columns // BLOCK)
    padded = torch.zeros(row_blocks * BLOCK, column_blocks * BLOCK)
    padded[:rows, :columns] = weight
    blocks = padded.view(row_blocks, BLOCK, column_blocks, BLOCK)
    scale = blocks.abs().amax(dim=(1, 3)) / E4M3_MAX
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    scaled = (blocks / scale[:, None, :, None]).clamp(-E4M3_MAX, E4M3_MAX)
    quantized = scaled.view_as(padded)[:rows, :columns].to(torch.float8_e4m3fn)
    return quantized.contiguous(), scale.contiguous()


def dequantize_blocks(quantized: Tensor, scale: Tensor) -> Tensor:
    """The float32 weights that `quantize_blocks` stands for."""
    spread = scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    return quantized.float() * spread[: quantized.shape[0], : quantized.shape[1]]
