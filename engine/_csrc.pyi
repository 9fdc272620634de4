"""Types of the native extension (csrc/bindings.cpp)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

def available_isas() -> list[str]: ...
def usable_cores() -> list[tuple[int, int]]: ...
def node_of_cpu(cpu: int) -> int: ...
def cpu_quota() -> float: ...

class Team:
    def __init__(self, cores: Sequence[tuple[int, int]], isa: str) -> None: ...
    @property
    def cores(self) -> list[tuple[int, int]]: ...
    @property
    def notes(self) -> list[str]: ...
    @property
    def isa(self) -> str: ...

class Linear:
    def __init__(
        self,
        team: Team,
        format: str,
        weight: NDArray[np.uint8],
        scale: NDArray[np.generic] | None,
        rows: int,
        columns: int,
        mode: str,
    ) -> None: ...
    def forward(self, x: NDArray[np.float32]) -> NDArray[np.float32]: ...
    @property
    def nbytes(self) -> int: ...

class Experts:
    def __init__(
        self, team: Team, format: str, experts: int, hidden: int, intermediate: int, mode: str
    ) -> None: ...
    def load(
        self,
        expert: int,
        gate: NDArray[np.uint8],
        up: NDArray[np.uint8],
        down: NDArray[np.uint8],
        gate_scale: NDArray[np.generic] | None,
        up_scale: NDArray[np.generic] | None,
        down_scale: NDArray[np.generic] | None,
    ) -> None: ...
    def forward(
        self, x: NDArray[np.float32], ids: NDArray[np.int32], weights: NDArray[np.float32]
    ) -> NDArray[np.float32]: ...
    @property
    def nbytes(self) -> int: ...

def read_bandwidth(team: Team, bytes: int, passes: int) -> float: ...
def fma_peak(team: Team, bf16: bool, seconds: float) -> float: ...
