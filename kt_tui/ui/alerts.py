"""What deserves attention now, one sentence each. Quiet when all is well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kt_tui.supervise.types import EngineState, EngineStatus
from kt_tui.ui.figures import size

if TYPE_CHECKING:
    from kt_tui.monitor import Snapshot

LOW_MEMORY_SHARE = 0.05
FULL_CACHE_SHARE = 0.98


def alerts(status: EngineStatus, snapshot: Snapshot | None, notes: Sequence[str] = ()) -> tuple[str, ...]:
    """The sentences, most urgent first; ``notes`` (of configuration and themes) come last."""
    found: list[str] = []
    if status.state is EngineState.FAILED:
        found.append(f"The engine failed: {status.reason}")
    memory = snapshot.memory if snapshot is not None else None
    if memory is not None and memory.total and memory.available < LOW_MEMORY_SHARE * memory.total:
        found.append(
            f"Main memory is nearly full: {size(memory.available)} of {size(memory.total)} left. "
            "Stop the engine (F5), or something else, before the kernel does."
        )
    figures = snapshot.engine if snapshot is not None else None
    if figures is not None and figures.kv_usage is not None and figures.kv_usage >= FULL_CACHE_SHARE:
        found.append("The key-value cache is full: new requests wait. A larger max-total-tokens gives room.")
    return (*found, *notes)
