"""Main memory from ``/proc/meminfo``, bounded by the control groups."""

from __future__ import annotations

import re

from kt_tui.hardware.cgroup import CgroupUsage
from kt_tui.hardware.files import SystemFiles, whole_number
from kt_tui.hardware.machine import HugePages, Memory


def parse_meminfo(text: str | None) -> dict[str, int]:
    """``/proc/meminfo`` (or a node's ``meminfo``) by name: sizes in bytes, counts as they are."""
    found: dict[str, int] = {}
    for line in (text or "").splitlines():
        name, separator, rest = line.partition(":")
        fields = rest.split()
        value = whole_number(fields[0]) if separator and fields else None
        if value is None or value < 0:
            continue
        unit = fields[1].lower() if len(fields) > 1 else ""
        found.setdefault(name.split()[-1] if name.split() else "", value * 1024 if unit == "kb" else value)
    return found


def read_memory(files: SystemFiles, usage: CgroupUsage, notes: list[str]) -> Memory:
    """Read the memory; what is missing is ``None`` with a note."""
    info = parse_meminfo(files.text("/proc/meminfo"))
    total = info.get("MemTotal")
    if total is None:
        notes.append("memory: n/a, /proc/meminfo has no MemTotal")
    host = info.get("MemAvailable")
    if host is None and "MemFree" in info:
        # Kernels before 3.14; the same approximation as free(1) used then.
        host = info["MemFree"] + info.get("Buffers", 0) + info.get("Cached", 0)
        notes.append(
            "memory: this kernel does not estimate available memory; free + buffers + cached is shown"
        )
    limit = usage.limit if usage.limit is not None and (total is None or usage.limit < total) else None
    available = host
    if limit is not None:
        headroom = max(0, limit - (usage.used or 0))
        if host is None or headroom < host:
            available = headroom
            notes.append(f"memory: a control group limits this process to {limit} bytes")
    shared = info.get("Shmem")
    cache = info.get("Cached")
    if cache is not None and shared is not None:
        cache = max(0, cache - shared)  # the kernel counts shared memory among the cached pages
    reserved = info.get("Hugetlb")
    if reserved is None and "HugePages_Total" in info and "Hugepagesize" in info:
        reserved = info["HugePages_Total"] * info["Hugepagesize"]
    return Memory(
        total=total,
        free=info.get("MemFree"),
        available=available,
        available_host=host,
        limit=limit,
        used_in_limit=usage.used if limit is not None else None,
        page_cache=cache,
        shared=shared,
        used=_used(total, info.get("MemFree"), cache, reserved),
        swap_total=info.get("SwapTotal"),
        swap_free=info.get("SwapFree"),
        hugepages=HugePages(
            size=info.get("Hugepagesize"),
            total=info.get("HugePages_Total"),
            free=info.get("HugePages_Free"),
            transparent=_selected(files.text("/sys/kernel/mm/transparent_hugepage/enabled")),
            reserved_bytes=reserved,
        ),
    )


def _used(total: int | None, free: int | None, cache: int | None, reserved: int | None) -> int | None:
    if total is None or free is None or cache is None:
        return None
    return max(0, total - free - cache - (reserved or 0))


def _selected(text: str | None) -> str | None:
    match = re.search(r"\[([a-z]+)\]", text or "")
    return match[1] if match else None
