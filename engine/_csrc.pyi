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
    @property
    def isa_detail(self) -> str: ...

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
        store: str | None = None,
    ) -> None: ...
    def forward(self, x: NDArray[np.float32]) -> NDArray[np.float32]: ...
    @property
    def nbytes(self) -> int: ...

class Experts:
    def __init__(
        self,
        team: Team,
        format: str,
        experts: int,
        hidden: int,
        intermediate: int,
        mode: str,
        store: str | None = None,
        down_format: str | None = None,
        limit: float = ...,
        alpha: float = ...,
        shift: float = ...,
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
        gate_bias: NDArray[np.float32] | None = None,
        up_bias: NDArray[np.float32] | None = None,
        down_bias: NDArray[np.float32] | None = None,
    ) -> None: ...
    def unload(self, expert: int) -> None: ...
    def loaded(self, expert: int) -> bool: ...
    def forward(
        self, x: NDArray[np.float32], ids: NDArray[np.int32], weights: NDArray[np.float32]
    ) -> NDArray[np.float32]: ...
    @property
    def nbytes(self) -> int: ...

def read_bandwidth(team: Team, bytes: int, passes: int) -> float: ...
def job_seconds(team: Team, pause: float, rounds: int) -> float: ...
def int8_peak(team: Team, seconds: float) -> float: ...
def tile_loop(team: Team, seconds: float) -> float: ...
def multiply_alone(team: Team, format: str, mode: str, depth: int, rows: int, seconds: float) -> float: ...
def fma_peak(team: Team, bf16: bool, seconds: float) -> float: ...

class Step:
    def __init__(
        self,
        segments: Sequence[tuple[int, int, int, Sequence[tuple[int, int]]]],
        picked: Sequence[int],
    ) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def picked(self) -> int: ...

_Columns = tuple[int, int, int]

class Plan:
    def __init__(self, team: Team) -> None: ...
    def buffer(self, width: int, picked: bool) -> _Columns: ...
    def bind(self, rows: _Columns) -> None: ...
    def norm(self, x: _Columns, to: _Columns, weight: NDArray[np.float32], eps: float) -> None: ...
    def multiply(self, maps: Sequence[Linear], x: _Columns, to: _Columns, add: bool) -> None: ...
    def silu_product(self, both: _Columns, to: _Columns) -> None: ...
    def rotation(self, frequencies: NDArray[np.float32], interleaved: bool) -> int: ...
    def attend(
        self,
        heads: int,
        kv_heads: int,
        head_dim: int,
        scale: float,
        window: int,
        sinks: NDArray[np.float32] | None,
        rotation: int,
        cache: int,
        tokens: int,
        qkv: _Columns,
        to: _Columns,
    ) -> None: ...
    def attend_latent(
        self,
        heads: int,
        key_dim: int,
        value_dim: int,
        scale: float,
        cache: int,
        tokens: int,
        queries: _Columns,
        keys: _Columns,
        to: _Columns,
    ) -> None: ...
    def mix(
        self,
        experts: Experts,
        k: int,
        score: str,
        groups: int,
        keep: int,
        renormalise: bool,
        scale: float,
        bias: NDArray[np.float32] | None,
        hits: int,
        logits: _Columns,
        x: _Columns,
        to: _Columns,
    ) -> None: ...
    def pick(self, x: _Columns, to: _Columns) -> None: ...
    def run(self, step: Step, given: Sequence[int]) -> None: ...

def linear_into(linear: Linear, x: int, tokens: int, y: int) -> None: ...
def experts_into(experts: Experts, x: int, tokens: int, ids: int, weights: int, k: int, y: int) -> None: ...
def route(
    team: Team,
    logits: NDArray[np.float32],
    bias: NDArray[np.float32] | None,
    k: int,
    score: str,
    groups: int,
    keep: int,
    renormalise: bool,
    scale: float,
    hits: NDArray[np.int64],
) -> tuple[NDArray[np.int32], NDArray[np.float32]]: ...
