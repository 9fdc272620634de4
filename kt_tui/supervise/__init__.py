"""One engine process tree: start, phases, health, stop, and proof that it is gone.

Names are loaded on first use: the keeper process starts through this package and must start fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kt_tui.supervise.launch import spec_from_plan
    from kt_tui.supervise.log import LogLine, LogRing
    from kt_tui.supervise.records import EngineRecord, running_engines
    from kt_tui.supervise.supervisor import Supervisor
    from kt_tui.supervise.types import (
        EngineError,
        EngineSpec,
        EngineState,
        EngineStatus,
        StopReport,
        Survivor,
    )

__all__ = [
    "EngineError",
    "EngineRecord",
    "EngineSpec",
    "EngineState",
    "EngineStatus",
    "LogLine",
    "LogRing",
    "StopReport",
    "Supervisor",
    "Survivor",
    "running_engines",
    "spec_from_plan",
]

_HOMES = {
    "EngineRecord": "records",
    "LogLine": "log",
    "LogRing": "log",
    "Supervisor": "supervisor",
    "running_engines": "records",
    "spec_from_plan": "launch",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'types')}"), name)
