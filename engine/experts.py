"""The mixture of experts: route, run the chosen experts, count."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from engine import cpu, ops
from engine.errors import CheckpointError
from engine.layers.linear import Linear
from engine.router import Score
from engine.weights.convert import common_format
from engine.weights.formats import KernelFormat
from engine.weights.loader import Loader, Matrix


@dataclass(frozen=True, slots=True)
class Routing:
    """A family's way to choose experts; the fields are `engine.router.route`'s arguments."""

    k: int
    score: Score
    renorm: bool
    groups: tuple[int, int] | None = None
    scale: float = 1.0


class Experts:
    """The routed experts of one layer."""

    def __init__(
        self,
        loader: Loader,
        team: cpu.Team,
        names: Iterable[tuple[str, str, str]],
        hidden: int,
        intermediate: int,
    ) -> None:
        """Check the experts' matrices and put off loading them.

        Args:
            loader: The checkpoint.
            team: The threads that compute.
            names: For each expert the tensors of gate, up and down; made as they are checked, because the number of
                experts is the configuration's claim.
            hidden: Inputs and outputs of an expert.
            intermediate: Its inner width.
        """
        experts = [
            (
                loader.matrix(gate, intermediate, hidden),
                loader.matrix(up, intermediate, hidden),
                loader.matrix(down, hidden, intermediate),
            )
            for gate, up, down in names
        ]
        self.count = len(experts)
        self._kept = _common([matrix for expert in experts for matrix in expert])
        mode = cpu.choose_mode(self._kept, loader.numerics)
        self._new = partial(cpu.ExpertLayer, team, self._kept, self.count, hidden, intermediate, mode=mode)
        self._converter = loader.converter
        self._layer: cpu.ExpertLayer | None = None
        for number, expert in enumerate(experts):
            loader.later(
                expert[0].stored.name,
                sum(matrix.nbytes for matrix in expert),
                partial(self._load, number, *expert),
            )

    def __call__(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """The weighted sum of the chosen experts' outputs, float32 ``[tokens, hidden]``."""
        if self._layer is None:
            raise RuntimeError("the loader has not run")
        return self._layer.forward(x, ids, weights)

    def _load(self, number: int, gate: Matrix, up: Matrix, down: Matrix) -> None:
        if self._layer is None:
            self._layer = self._new()
        (g, gate_scale), (u, up_scale), (d, down_scale) = self._converter.packable(
            (gate, up, down), [self._kept] * 3
        )
        self._layer.load(number, g, u, d, gate_scale, up_scale, down_scale)
        for matrix in (gate, up, down):
            matrix.forget()


def _common(matrices: list[Matrix]) -> KernelFormat:
    """The format in which a layer's experts keep these matrices."""
    first = matrices[0]
    found = common_format({matrix.format for matrix in matrices}, first.columns)
    if found is None:
        other = next(matrix for matrix in matrices if matrix.format is not first.format)
        raise CheckpointError(
            f"{other.stored.path}: {other.stored.name} is stored as {other.format.name}, but other experts of its "
            f"layer as {first.format.name}; take a file in which a layer's experts have one format"
        )
    return found


class MixtureOfExperts:
    """A router and its experts."""

    def __init__(
        self, team: cpu.Team, gate: Linear, bias: torch.Tensor | None, routing: Routing, experts: Experts
    ) -> None:
        self._team = team
        self.gate = gate
        self.bias = bias
        self.routing = routing
        self.experts = experts
        self.hits = np.zeros(experts.count, dtype=np.int64)
        """Tokens routed to each expert since the start."""

    def add_to(self, y: torch.Tensor, x: torch.Tensor) -> None:
        """Add the layer's output for ``x`` to ``y``, both float32 ``[tokens, hidden]``."""
        way = self.routing
        ids, weights = ops.route(
            self._team,
            self.gate(x),
            self.bias,
            self.hits,
            k=way.k,
            score=way.score,
            groups=way.groups,
            renorm=way.renorm,
            scale=way.scale,
        )
        y += self.experts(x, ids, weights)
