"""Fixed-size series of measured values on one time base."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping

from kt_tui.monitor.snapshot import Snapshot

Series = Callable[[Snapshot], float | None]


def _used_share(snapshot: Snapshot) -> float | None:
    memory = snapshot.memory
    return memory.used / memory.total if memory and memory.total else None


def _gpu_utilization(snapshot: Snapshot) -> float | None:
    known = [gpu.utilization for gpu in snapshot.gpus if gpu.utilization is not None]
    return sum(known) / len(known) if known else None


STANDARD_SERIES: Mapping[str, Series] = {
    "cpu": lambda s: s.cpu.percent if s.cpu else None,
    "memory": _used_share,
    "memory_used": lambda s: s.memory.used if s.memory else None,
    "gpu": _gpu_utilization,
    "engine_rss": lambda s: s.process.rss if s.process else None,
    "engine_cpu": lambda s: s.process.cpu_percent if s.process else None,
    "tokens_per_s": lambda s: s.engine.tokens_per_s if s.engine else None,
    "kv_usage": lambda s: s.engine.kv_usage if s.engine else None,
    "running": lambda s: s.engine.running if s.engine else None,
}
"""Names and meanings of the series that the sampler keeps (units as in `Snapshot`)."""


class History:
    """The last ``capacity`` values of each series, one a tick; memory never grows.

    Written by the sampler's thread and read by others: each read copies, and a read during a write may at worst
    miss the newest value.
    """

    def __init__(self, capacity: int = 600, series: Mapping[str, Series] = STANDARD_SERIES) -> None:
        self.capacity = capacity
        self._series = dict(series)
        self._values = {name: array("d", [math.nan]) * capacity for name in self._series}
        self._times = array("d", [math.nan]) * capacity
        self._count = 0

    def add(self, snapshot: Snapshot) -> None:
        """Record one tick."""
        slot = self._count % self.capacity
        self._times[slot] = snapshot.monotonic
        for name, read in self._series.items():
            value = read(snapshot)
            self._values[name][slot] = math.nan if value is None else float(value)
        self._count += 1

    def __len__(self) -> int:
        return min(self._count, self.capacity)

    @property
    def names(self) -> tuple[str, ...]:
        """The series' names."""
        return tuple(self._series)

    def values(self, name: str, last: int | None = None) -> list[float | None]:
        """The series' values, oldest first, None where nothing was measured; at most the ``last`` ones."""
        return [None if math.isnan(value) else value for value in self._ordered(self._values[name], last)]

    def times(self, last: int | None = None) -> list[float]:
        """When each value was taken (monotonic seconds), oldest first."""
        return self._ordered(self._times, last)

    def peak(self, name: str, last: int | None = None) -> float | None:
        """The largest value kept, or None."""
        return max((value for value in self.values(name, last) if value is not None), default=None)

    def _ordered(self, ring: array[float], last: int | None) -> list[float]:
        count = self._count
        length = min(count, self.capacity) if last is None else min(count, self.capacity, last)
        start = count - length
        return [ring[position % self.capacity] for position in range(start, count)]
