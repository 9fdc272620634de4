"""Live figures of the machine and the engine: one sampling thread, immutable snapshots, fixed-size histories."""

from kt_tui.monitor.history import History
from kt_tui.monitor.poller import EngineTarget
from kt_tui.monitor.sampler import Sampler
from kt_tui.monitor.snapshot import (
    CpuSample,
    EngineFigures,
    GpuSample,
    MemorySample,
    NodeSample,
    ProcessSample,
    Snapshot,
)

__all__ = [
    "CpuSample",
    "EngineFigures",
    "EngineTarget",
    "GpuSample",
    "History",
    "MemorySample",
    "NodeSample",
    "ProcessSample",
    "Sampler",
    "Snapshot",
]
