"""CPU kernels for torch tensors: a pinned thread team, quantised linears and mixture-of-experts layers.

A thin layer over the native extension ``engine._csrc``. Weights are packed when a layer is made or an expert is
loaded, so the source bytes (often a memory-mapped checkpoint) are not needed afterwards. All calls release the
interpreter lock; calls that use the same team wait for each other.
"""

from __future__ import annotations

import math

import torch

from engine import _csrc
from engine.cpu_arrays import Array, Format, Mode, Store, bytes_of, scale_of, stored_name
from engine.cpu_experts import GPT_OSS, SILU, ExpertLayer, Gating
from engine.cpu_team import ISA_VARIABLE, Team, active_isa, available_isas, choose_cores

__all__ = [
    "GPT_OSS",
    "ISA_VARIABLE",
    "SILU",
    "Array",
    "ExpertLayer",
    "Format",
    "Gating",
    "Linear",
    "Mode",
    "Store",
    "Team",
    "active_isa",
    "available_isas",
    "choose_cores",
    "choose_mode",
    "default_mode",
    "relative_error",
]


def default_mode(fmt: Format | Store) -> Mode:
    """How a format is computed with unless asked otherwise: ggml's with int8 activations, as llama.cpp does."""
    return "fast" if fmt.startswith("q") else "exact"


def choose_mode(fmt: Format | Store, numerics: str) -> Mode:
    """The mode for a format when "auto", "exact" or "fast" is asked for."""
    return default_mode(fmt) if numerics == "auto" else "fast" if numerics == "fast" else "exact"


class Linear:
    """``y = x @ W.T`` for one weight matrix in a checkpoint's own format.

    Numeric modes:
        exact: Weights keep their value. Activations stay float32; the ``avx512_bf16`` and ``amx`` variants may round
            them to bfloat16 for bf16, FP8 and mxfp8. Sums are float32. For few rows the formats of
            integers take activations as 16-bit integers with one scale per 32, an error of 1.6e-5 of the largest.
        fast: The formats of integers take activations as 8-bit integers with one scale per 32; bench/kernels.py
            measures the error. Other formats compute as in exact mode.
    """

    def __init__(
        self,
        team: Team,
        fmt: Format,
        weight: Array,
        scale: Array | None = None,
        *,
        rows: int,
        cols: int,
        mode: Mode = "exact",
        store: Store | None = None,
    ) -> None:
        """Pack a weight matrix.

        Args:
            team: Threads that pack and compute.
            fmt: Format of `weight`.
            weight: Raw row-major source bytes, uint8, `rows` x `cols` weights.
            scale: As the format has it: fp8_block128 float32 [ceil(rows/128), ceil(cols/128)], fp8_channel float32
                [rows], mxfp8 and mxfp4 uint8 [rows, cols/32], int4_g32 bfloat16 [rows, cols/32], int4_g128 float16
                [cols/128, rows]; the others have none apart.
            rows: Output features.
            cols: Input features; whole blocks of the format.
            mode: "exact" or "fast".
            store: Integer format to make of f32, bf16, fp8_block128 or fp8_channel weights; approximate, see
                `relative_error`.

        Raises:
            ValueError: Sizes, types or the format don't fit, or an FP8 weight or scale is not a finite number.
        """
        self.team, self.format, self.rows, self.cols, self.mode = team, fmt, rows, cols, mode
        self.native = _csrc.Linear(
            team.native, fmt, bytes_of(weight), scale_of(fmt, scale), rows, cols, mode, stored_name(store)
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the packed weights."""
        return self.native.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply float32 activations [T, cols] to float32 [T, rows]."""
        out = torch.empty(x.shape[0], self.rows)
        self.into(out, x.contiguous())
        return out

    def into(self, out: torch.Tensor, x: torch.Tensor) -> None:
        """Multiply float32 activations [T, cols] and store the result in `out` [T, rows].

        Raises:
            ValueError: Shapes don't fit, or a tensor is not contiguous float32.
        """
        rows = x.shape[0]
        for tensor, width, name in ((x, self.cols, "x"), (out, self.rows, "out")):
            if (
                tensor.dtype is not torch.float32
                or not tensor.is_contiguous()
                or tensor.shape != (rows, width)
            ):
                raise ValueError(
                    f"{name} must be contiguous float32 [{rows}, {width}], not {tensor.dtype} {list(tensor.shape)}"
                )
        _csrc.linear_into(self.native, x.data_ptr(), rows, out.data_ptr())


def relative_error(linear: Linear, values: torch.Tensor) -> float:
    """Root-mean-square error of the stored weights over the root-mean-square of the true ones.

    Args:
        linear: A matrix, perhaps made with ``store``.
        values: What it stands for, float32 [rows, cols].
    """
    miss = 0.0
    for begin in range(0, linear.cols, 256):
        # Unit vectors read the weights out; they are exact as 8-bit activations, too. Few at a time: many rows may
        # go through bfloat16.
        unit = torch.zeros(min(256, linear.cols - begin), linear.cols)
        unit[:, begin:].fill_diagonal_(1)
        read = torch.cat([linear(unit[at : at + 4]) for at in range(0, len(unit), 4)])
        miss += float((read.T - values[:, begin : begin + 256]).double().square().sum())
    return math.sqrt(miss / max(float(values.double().square().sum()), 1e-300))
