"""The memory plan: what each byte of a launch is for, on each device, and whether it all fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.budget import ARCHITECTURES, Budget, ModelShape, WeightBytes, engine_budget, read_budget_inputs
from engine.errors import EngineError
from kt_tui.hardware.machine import Machine
from kt_tui.launch.known import known_inputs

GIB = 1 << 30


@dataclass(frozen=True)
class ModelFacts:
    """What a model's headers (or, before it is on disk, the catalogue) say of its shape and size.

    Attributes:
        shape: Its dimensions; None if unknown.
        weights: Its bytes by kind; None if unknown.
        source: ``headers``, ``catalogue`` or ``none``.
        problem: Why nothing is known, or why the files cannot be loaded.
        path: The checkpoint whose headers were read.
    """

    shape: ModelShape | None = None
    weights: WeightBytes | None = None
    source: str = "none"
    problem: str | None = None
    path: Path | None = None

    def still_good_for(self, path: Path | None) -> bool:
        """Whether a plan for the checkpoint at ``path`` may use these facts instead of reading it again."""
        return self.problem is None and self.path == path


def read_facts(path: Path | None, name: str) -> ModelFacts:
    """Read a checkpoint's headers; without a checkpoint take what is recorded of the model ``name``."""
    if path is not None and path.exists():
        try:
            shape, weights = read_budget_inputs(path)
        except (EngineError, OSError) as error:
            return ModelFacts(problem=str(error), path=path)
        if shape.architecture not in ARCHITECTURES:
            known = " and ".join(ARCHITECTURES)
            return ModelFacts(
                problem=f"the engine runs {known}, not {shape.architecture} ({path})", path=path
            )
        return ModelFacts(shape, weights, "headers", path=path)
    if recorded := known_inputs(name):
        return ModelFacts(recorded[0], recorded[1], "catalogue")
    return ModelFacts()


@dataclass(frozen=True)
class DeviceMemory:
    """One device's share of the plan, in bytes.

    Attributes:
        total: What the device has, or what a limit leaves of it; None if unknown.
        available: What is free before the launch; None if unknown.
        parts: What the launch puts there.
        index: A GPU's number; None for main memory.
        name: A GPU's name.
    """

    total: int | None
    available: int | None
    parts: Mapping[str, int] = field(default_factory=dict)
    index: int | None = None
    name: str | None = None

    @property
    def needed(self) -> int:
        """The sum of the parts."""
        return sum(self.parts.values())

    @property
    def free_after(self) -> int | None:
        """What is left once everything is loaded and full; negative if it does not fit."""
        return None if self.available is None else self.available - self.needed

    def to_json(self) -> dict[str, Any]:
        """The device in the ``memory`` object of a plan."""
        document: dict[str, Any] = {} if self.index is None else {"index": self.index, "name": self.name}
        return document | {
            "total": self.total,
            "available": self.available,
            "parts": dict(self.parts),
            "free_after": self.free_after,
        }


@dataclass(frozen=True)
class MemoryPlan:
    """Main memory and GPUs."""

    host: DeviceMemory
    gpus: tuple[DeviceMemory, ...] = ()

    @property
    def fits(self) -> bool | None:
        """Whether every device holds its parts; None if sizes are unknown."""
        left = [device.free_after for device in (self.host, *self.gpus) if device.parts]
        if not left:
            return None
        if any(free is not None and free < 0 for free in left):
            return False
        return None if None in left else True

    def to_json(self) -> dict[str, Any]:
        """The ``memory`` object of a plan."""
        return {"gpus": [gpu.to_json() for gpu in self.gpus], "host": self.host.to_json()}


def host_memory(machine: Machine) -> tuple[int | None, int | None]:
    """Main memory that this process may have in all, and what of it is free now."""
    memory = machine.memory
    total = memory.total if memory.limit is None else min(memory.limit, memory.total or memory.limit)
    return total, memory.available


def plan_budget(
    facts: ModelFacts, context: int | None, tokens: int, chunk: int, running: int
) -> Budget | None:
    """The bytes of a configuration; None when the model's sizes are unknown."""
    if facts.shape is None or facts.weights is None:
        return None
    shape = dataclasses.replace(facts.shape, context_length=context or facts.shape.context_length)
    return engine_budget(
        shape, facts.weights, max_total_tokens=tokens, chunk=chunk, max_running_requests=running
    )


def memory_plan(machine: Machine, budget: Budget | None) -> MemoryPlan:
    """Lay a budget over a machine. This version's embedded engine puts everything into main memory."""
    total, available = host_memory(machine)
    host = DeviceMemory(total, available, budget.parts if budget else {})
    gpus = tuple(
        DeviceMemory(gpu.memory_total, gpu.memory_free, {}, gpu.index, gpu.name) for gpu in machine.gpus
    )
    return MemoryPlan(host, gpus)
