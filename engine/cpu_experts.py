"""Mixture-of-experts layers for torch tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from engine import _csrc
from engine.cpu_arrays import Array, Format, Mode, Store, bytes_of, scale_of, stored_name
from engine.cpu_team import Team


@dataclass(frozen=True, slots=True)
class Gating:
    """How gate and up become an expert's intermediate value.

    With ``g = min(gate, limit)`` and ``u`` = ``up`` cut to ``[-limit, limit]``, that is
    ``g * sigmoid(alpha * g) * (u + shift)``.
    """

    limit: float = math.inf
    alpha: float = 1.0
    shift: float = 0.0


SILU = Gating()
"""``silu(gate) * up``; `Gating(limit)` is the same of clamped values, as in DeepSeek-V4 (limit 10)."""
GPT_OSS = Gating(limit=7.0, alpha=1.702, shift=1.0)
"""The activation of gpt-oss and MiniMax-M3."""


class ExpertLayer:
    """The routed experts of one layer: ``y[t] = sum_j w[t,j] * down(gated(gate(x[t]), up(x[t])))``.

    Numeric modes as for `engine.cpu.Linear`. Equal inputs give equal bits, whatever the number of threads.
    """

    def __init__(
        self,
        team: Team,
        fmt: Format,
        experts: int,
        hidden: int,
        intermediate: int,
        *,
        mode: Mode = "exact",
        store: Store | None = None,
        down_format: Format | None = None,
        activation: Gating = SILU,
    ) -> None:
        """Reserve a layer; memory is taken by the experts that are loaded.

        Args:
            team: Threads that pack and compute.
            fmt: Format of gate and up, and of down unless that has its own.
            experts: Number of experts.
            hidden: Inputs and outputs of an expert.
            intermediate: Its inner width.
            mode: "exact" or "fast".
            store: Integer format to make of all three matrices.
            down_format: Format of down where it differs.
            activation: What is made of gate and up.

        Raises:
            ValueError: The format is unknown, cannot be stored as asked, or a size is out of range.
        """
        self.team, self.format, self.down_format = team, fmt, down_format or fmt
        self.experts, self.hidden, self.intermediate = experts, hidden, intermediate
        self.activation = activation
        self.native = _csrc.Experts(
            team.native,
            fmt,
            experts,
            hidden,
            intermediate,
            mode,
            stored_name(store),
            down_format,
            activation.limit,
            activation.alpha,
            activation.shift,
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the experts loaded so far; waits for a call that is under way."""
        return self.native.nbytes

    def loaded(self, expert: int) -> bool:
        """Whether an expert is loaded; waits for a call that is under way.

        Raises:
            ValueError: There is no such expert.
        """
        return self.native.loaded(expert)

    def load(  # noqa: PLR0917 (three matrices and their scales, in the order of the checkpoint)
        self,
        expert: int,
        gate: Array,
        up: Array,
        down: Array,
        gate_scale: Array | None = None,
        up_scale: Array | None = None,
        down_scale: Array | None = None,
        *,
        gate_bias: Array | None = None,
        up_bias: Array | None = None,
        down_bias: Array | None = None,
    ) -> None:
        """Pack one expert. Loading it again replaces it; if the new one is refused, the former goes on working.

        Contiguous arrays, memory-mapped ones too, are read where they lie.

        Args:
            expert: Its index.
            gate: Raw row-major bytes [intermediate, hidden], uint8.
            up: As `gate`.
            down: Raw row-major bytes [hidden, intermediate], uint8.
            gate_scale: As for `engine.cpu.Linear`.
            up_scale: As `gate_scale`.
            down_scale: As `gate_scale`, in the format of down.
            gate_bias: Added to the product with gate, floating-point [intermediate].
            up_bias: Likewise.
            down_bias: Added to the product with down before the router's weight, floating-point [hidden].

        Raises:
            ValueError: Sizes or types don't fit, or an FP8 weight, a scale or a bias is not a finite number.
        """
        self.native.load(
            expert,
            bytes_of(gate),
            bytes_of(up),
            bytes_of(down),
            scale_of(self.format, gate_scale),
            scale_of(self.format, up_scale),
            scale_of(self.down_format, down_scale),
            _bias_of(gate_bias),
            _bias_of(up_bias),
            _bias_of(down_bias),
        )

    def unload(self, expert: int) -> None:
        """Give an expert's memory back to the system; nothing happens if it is not loaded.

        Raises:
            ValueError: There is no such expert.
        """
        self.native.unload(expert)

    def forward(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Run the routed experts.

        Args:
            x: float32 [T, hidden].
            ids: int32 [T, k] expert of each token's choices; negative means computed elsewhere.
            weights: float32 [T, k] weight of each choice.

        Returns:
            float32 [T, hidden], zero for a token with no expert here.

        Raises:
            ValueError: Shapes or types don't fit, or an id names an expert that is not loaded.
        """
        tokens, k = ids.shape
        x, ids, weights = x.contiguous(), ids.contiguous(), weights.contiguous()
        for tensor, kind, shape, name in (
            (x, torch.float32, (tokens, self.hidden), "x"),
            (ids, torch.int32, (tokens, k), "ids"),
            (weights, torch.float32, (tokens, k), "weights"),
        ):
            if tensor.dtype is not kind or not tensor.is_contiguous() or tensor.shape != shape:
                raise ValueError(
                    f"{name} must be contiguous {kind} {list(shape)}, not {tensor.dtype} {list(tensor.shape)}"
                )
        out = torch.empty(tokens, self.hidden)
        _csrc.experts_into(
            self.native, x.data_ptr(), tokens, ids.data_ptr(), weights.data_ptr(), k, out.data_ptr()
        )
        return out


def _bias_of(bias: Array | None) -> NDArray[np.float32] | None:
    if bias is None:
        return None
    if isinstance(bias, torch.Tensor):
        array: NDArray[np.float32] = bias.detach().float().contiguous().numpy()
        return array
    return np.ascontiguousarray(bias, dtype=np.float32)
