"""CPU, memory and NUMA nodes of this machine."""

from __future__ import annotations

import os
import re
from pathlib import Path

from kt_tui.hardware.cgroup import read_control_group
from kt_tui.hardware.files import SystemFiles
from kt_tui.hardware.memory import parse_meminfo, read_memory
from kt_tui.monitor.snapshot import CpuSample, MemorySample, NodeSample

_NODES = Path("/sys/devices/system/node")


def read_cpu() -> CpuSample:
    """Busy percent since this thread's last call (the first call only sets the mark)."""
    import psutil

    per_cpu = tuple(psutil.cpu_percent(interval=None, percpu=True))
    percent = sum(per_cpu) / len(per_cpu) if per_cpu else 0.0
    try:
        load: tuple[float, float, float] | None = os.getloadavg()
    except OSError:
        load = None
    return CpuSample(percent, per_cpu, load)


def read_main_memory() -> MemorySample | None:
    """Memory as the kernel and the control groups tell it; None if the kernel does not tell."""
    files = SystemFiles(None)
    _, usage = read_control_group(files)
    memory = read_memory(files, usage, [])
    if memory.total is None or memory.available is None:
        return None
    total = memory.total if memory.limit is None else min(memory.total, memory.limit)
    swap_total = memory.swap_total or 0
    return MemorySample(
        total=total,
        available=memory.available,
        used=max(total - memory.available, 0),
        page_cache=memory.page_cache,
        swap_total=swap_total,
        swap_used=max(swap_total - (memory.swap_free or 0), 0),
        limited=memory.limit is not None,
    )


def read_nodes(folder: Path = _NODES) -> tuple[NodeSample, ...]:
    """Memory of each NUMA node; empty on a machine with fewer than two."""
    found = []
    try:
        names = sorted(path.name for path in folder.iterdir() if re.fullmatch(r"node\d+", path.name))
    except OSError:
        return ()
    for name in names:
        try:
            info = parse_meminfo((folder / name / "meminfo").read_text())
        except OSError:
            continue
        if total := info.get("MemTotal"):
            found.append(NodeSample(int(name[4:]), total, info.get("MemFree", 0), info.get("FilePages")))
    return tuple(sorted(found, key=lambda node: node.id)) if len(found) > 1 else ()
