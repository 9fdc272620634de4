"""A small model, a machine and a planner with everything filled in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from engine.budget import ModelShape, WeightBytes
from kt_tui.hardware.machine import Cpu, Machine, Memory
from kt_tui.launch import LaunchPlan, ModelFacts, plan_launch

GIB = 1 << 30


@dataclass(frozen=True)
class FakeModel:
    """What planning reads of a catalogue entry."""

    name: str = "tiny"
    path: Path | None = Path("/models/tiny")
    target: Path | None = None
    state: str = "complete"
    problems: tuple[str, ...] = ()
    preparable: bool = False
    served_name: str = "tiny"
    defaults: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class FakeProfile:
    """What planning reads of a profile."""

    name: str = "mine"
    model: str = "tiny"
    engine: str | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    extra: tuple[str, ...] = ()


class FakeSettings:
    """config.toml with only these keys set."""

    def __init__(self, **values: object) -> None:
        self.values = {name.replace("__", "."): value for name, value in values.items()}

    def get(self, key: str) -> object:
        return self.values[key.replace("-", "_")]

    def origin(self, key: str) -> str:
        return "config" if key.replace("-", "_") in self.values else "default"


FACTS = ModelFacts(
    ModelShape("MiniMaxM2ForCausalLM", 30, 640, 12, 4, 64, 384, 49152, 8192, 8, 4),
    WeightBytes(experts=170 << 20, embedding=60 << 20, head=60 << 20, other=40 << 20),
    "headers",
    path=Path("/models/tiny"),
)

MACHINE = Machine(
    cpu=Cpu(model="X", arch="x86_64", usable_physical_cores=16, usable_logical_cpus=32, isa=("avx2",)),
    memory=Memory(total=64 * GIB, available=48 * GIB),
)


@pytest.fixture
def model() -> type[FakeModel]:
    return FakeModel


@pytest.fixture
def profile() -> type[FakeProfile]:
    return FakeProfile


@pytest.fixture
def settings() -> type[FakeSettings]:
    return FakeSettings


@pytest.fixture
def facts() -> ModelFacts:
    return FACTS


@pytest.fixture
def machine() -> Machine:
    return MACHINE


@pytest.fixture
def plan() -> Callable[..., LaunchPlan]:
    """`plan_launch` on the tiny model and a machine with plenty of everything; options as keywords or a dict."""

    def make(options: Mapping[str, object] | None = None, **changes: Any) -> LaunchPlan:
        arguments: dict[str, Any] = {"facts": FACTS, "options": options or {}} | changes
        return plan_launch(
            arguments.pop("model", FakeModel()),
            arguments.pop("machine", MACHINE),
            arguments.pop("settings", None),
            arguments.pop("profile", None),
            **arguments,
        )

    return make
