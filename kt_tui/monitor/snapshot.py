"""One moment of the machine and the engine. Sizes are bytes, shares are 0..1 unless named percent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class CpuSample:
    """Busy percent of each logical CPU (in the order of the kernel's numbers) and of all together."""

    percent: float
    per_cpu: tuple[float, ...]
    load_average: tuple[float, float, float] | None = None


@dataclass(frozen=True)
class MemorySample:
    """Main memory. ``used`` is what cannot be reclaimed: total - available.

    In a control group with a limit (``limited``), total and available are those of the group; the page cache and
    swap are the machine's.
    """

    total: int
    available: int
    used: int
    page_cache: int | None
    swap_total: int
    swap_used: int
    limited: bool = False


@dataclass(frozen=True)
class NodeSample:
    """Memory of one NUMA node."""

    id: int
    total: int
    free: int
    page_cache: int | None = None


@dataclass(frozen=True)
class GpuSample:
    """One GPU; what the driver refuses to say is None."""

    index: int
    name: str
    memory_total: int | None = None
    memory_used: int | None = None
    utilization: float | None = None  # percent
    power_w: float | None = None
    temperature_c: float | None = None


@dataclass(frozen=True)
class ProcessSample:
    """The engine's process tree, summed."""

    pid: int
    processes: int
    rss: int
    cpu_percent: float | None  # 100 is one logical CPU; None at the first sample
    threads: int
    read_per_s: float | None = None  # bytes from storage; None where the kernel does not say
    write_per_s: float | None = None


@dataclass(frozen=True)
class EngineFigures:
    """What the engine says about itself; None for what it does not say."""

    running: int | None = None
    waiting: int | None = None
    kv_tokens_used: int | None = None
    kv_tokens_total: int | None = None
    kv_usage: float | None = None  # 0..1
    tokens_per_s: float | None = None  # generated tokens of all requests
    prompt_tokens_per_s: float | None = None
    generated_tokens: int | None = None  # since the engine started


@dataclass(frozen=True)
class Snapshot:
    """All figures of one tick. A missing part is None, and ``reasons[part]`` says why in one sentence.

    ``time`` is seconds since the epoch, ``monotonic`` the clock for differences. ``ages`` gives, for each part,
    the seconds since it was measured (parts have their own intervals).
    """

    time: float
    monotonic: float
    cpu: CpuSample | None = None
    memory: MemorySample | None = None
    nodes: tuple[NodeSample, ...] = ()
    gpus: tuple[GpuSample, ...] = ()
    process: ProcessSample | None = None
    engine: EngineFigures | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)
    ages: Mapping[str, float] = field(default_factory=dict)
