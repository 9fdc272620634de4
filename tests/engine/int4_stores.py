"""Matrices as compressed-tensors and GPTQ store 4-bit integers, written with torch alone."""

from __future__ import annotations

import torch


def store_int4(hub: dict[str, torch.Tensor], name: str, value: torch.Tensor, store: str) -> torch.Tensor:
    """Put a matrix's tensors into a checkpoint.

    Args:
        hub: The checkpoint's tensors.
        name: The matrix's own name, which ends in ``weight``.
        value: Its values ``[rows, columns]``.
        store: ``int4_g32...`` (compressed-tensors), ``gptq`` (zero points stored less one) or ``gptq_v2``.

    Returns:
        What the stored integers stand for.
    """
    stem, gptq = name.removesuffix("weight"), store.startswith("gptq")
    rows, columns = value.shape
    size, kind = (128, torch.float16) if gptq else (32, torch.bfloat16)
    groups = value.reshape(rows, -1, size)
    scale = (groups.abs().amax(-1) / 7.5).to(kind)
    q = (groups / scale.float()[..., None]).round().add(8).clamp(0, 15)
    exact = ((q - 8) * scale.float()[..., None]).reshape(rows, columns)
    words = packed(q.reshape(rows, columns).long())
    if gptq:
        hub[stem + "qweight"] = words.T.contiguous()
        hub[stem + "scales"] = scale.T.contiguous()
        zero = 8 if store == "gptq_v2" else 7
        hub[stem + "qzeros"] = packed(torch.full((columns // size, rows), zero))
        hub[stem + "g_idx"] = torch.arange(columns, dtype=torch.int32) // size
    else:
        hub[stem + "weight_packed"], hub[stem + "weight_scale"] = words, scale
        hub[stem + "weight_shape"] = torch.tensor([rows, columns])
    return exact


def packed(q: torch.Tensor) -> torch.Tensor:
    """Eight numbers from 0 to 15 in an int32, the first in its lowest bits: ``[rows, n]`` to ``[rows, n/8]``."""
    words = (q.reshape(q.shape[0], -1, 8) << (4 * torch.arange(8))).sum(-1)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)
