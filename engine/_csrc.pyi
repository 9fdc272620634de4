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
def int8_peak(team: Team, seconds: float) -> float: ...
def fma_peak(team: Team, bf16: bool, seconds: float) -> float: ...

class Step:
    def __init__(
        self,
        segments: Sequence[tuple[int, int, int, Sequence[tuple[int, int]]]],
        cosine: NDArray[np.float32],
        sine: NDArray[np.float32],
        interleaved: bool,
    ) -> None: ...
    @property
    def rows(self) -> int: ...

def linear_into(linear: Linear, x: int, tokens: int, y: int, add: bool) -> None: ...
def experts_into(experts: Experts, x: int, tokens: int, ids: int, weights: int, k: int, y: int) -> None: ...
def rms_norm(
    team: Team,
    x: int,
    rows: int,
    groups: int,
    width: int,
    stride: int,
    weight: int,
    eps: float,
    out: int,
    out_stride: int,
) -> None: ...
def silu_product(team: Team, both: int, rows: int, inner: int, out: int) -> None: ...
def route(
    team: Team,
    logits: int,
    bias: int,
    tokens: int,
    experts: int,
    k: int,
    score: str,
    groups: int,
    keep: int,
    renormalise: bool,
    scale: float,
    ids: int,
    weights: int,
    hits: int,
) -> None: ...
def attend_grouped(
    team: Team,
    step: Step,
    heads: int,
    kv_heads: int,
    key_dim: int,
    value_dim: int,
    scale: float,
    window: int,
    sinks: int,
    qkv: int,
    keys: int,
    values: int,
    tokens: int,
    out: int,
) -> None: ...
def attend_latent(
    team: Team,
    step: Step,
    heads: int,
    key_dim: int,
    value_dim: int,
    scale: float,
    queries: int,
    new_keys: int,
    cache: int,
    tokens: int,
    out: int,
) -> None: ...
