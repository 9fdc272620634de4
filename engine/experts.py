"""The mixture of experts: route, run the chosen experts, count."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np
import torch

from engine import cpu
from engine.errors import CheckpointError
from engine.layers.linear import Linear
from engine.plan import Routing, Rows, mix
from engine.weights.convert import common_format
from engine.weights.formats import KernelFormat
from engine.weights.loader import Loader, Matrix


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
        inner = [matrix for gate, up, _ in experts for matrix in (gate, up)]
        outer = [down for _, _, down in experts]
        self._kept = (_common(inner), _common(outer))
        store = loader.losses.store(self._kept[0])
        modes = {cpu.choose_mode(store or kept, loader.numerics) for kept in self._kept}
        self._new = partial(
            cpu.ExpertLayer,
            team,
            self._kept[0],
            self.count,
            hidden,
            intermediate,
            mode="fast" if "fast" in modes else "exact",
            store=store,
            down_format=self._kept[1],
        )
        self._sample = partial(loader.losses.sample, "experts", store, team)
        self._converter = loader.converter
        self._layer: cpu.ExpertLayer | None = None
        for number, expert in enumerate(experts):
            loader.later(expert, partial(self._load, number, *expert))

    @property
    def layer(self) -> cpu.ExpertLayer:
        """The loaded experts."""
        if self._layer is None:
            raise RuntimeError("the loader has not run")
        return self._layer

    def _load(self, number: int, gate: Matrix, up: Matrix, down: Matrix) -> None:
        if self._layer is None:
            self._layer = self._new()
            self._sample(gate)
        (g, gate_scale), (u, up_scale), (d, down_scale) = self._converter.packable(
            (gate, up, down), [self._kept[0], *self._kept]
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

    def __init__(self, gate: Linear, bias: torch.Tensor | None, routing: Routing, experts: Experts) -> None:
        self.gate = gate
        self.bias = bias
        self.routing = routing
        self.experts = experts
        self.hits = np.zeros(experts.count, dtype=np.int64)
        """Tokens routed to each expert since the start."""

    def add_to(self, y: Rows, x: Rows) -> None:
        """Add the layer's output for ``x`` to ``y``."""
        mix(self.experts.layer, self.routing, self.bias, self.hits, self.gate(x), x, y)
