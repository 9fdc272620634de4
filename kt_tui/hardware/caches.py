"""Caches of the processors, and which cores are the fast ones of a hybrid processor."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kt_tui.hardware.files import SystemFiles, parse_cpu_list

SYSFS = "/sys/devices/system/cpu"
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
MAXIMUM_INDEX = 10


@dataclass(frozen=True)
class Cache:
    """All caches of one level and kind: ``count`` of ``size`` bytes, each for ``shared_by`` logical CPUs."""

    level: int
    kind: str
    size: int
    count: int
    shared_by: int


def parse_size(text: str | None) -> int | None:
    """``32768K`` in bytes."""
    match = re.fullmatch(r"(\d{1,12})([KMG]?)", (text or "").strip())
    return int(match[1]) * UNITS[match[2]] if match else None


def read_caches(files: SystemFiles, cpus: tuple[int, ...], notes: list[str]) -> tuple[Cache, ...]:
    """The caches by sysfs, lowest level first."""
    groups: dict[tuple[int, str, int], set[tuple[int, ...]]] = {}
    for cpu in cpus:
        for index in range(MAXIMUM_INDEX):
            folder = f"{SYSFS}/cpu{cpu}/cache/index{index}"
            level = files.number(f"{folder}/level")
            if level is None:
                break
            kind = (files.text(f"{folder}/type") or "").strip().lower()
            size = parse_size(files.text(f"{folder}/size"))
            shared = parse_cpu_list(files.text(f"{folder}/shared_cpu_list"))
            if size and shared and kind in {"data", "unified"} and 1 <= level <= MAXIMUM_INDEX:
                groups.setdefault((level, kind, size), set()).add(shared)
    if cpus and not groups:
        notes.append("cpu: caches n/a, /sys/devices/system/cpu/*/cache does not tell")
    return tuple(
        Cache(level, kind, size, len(shared), max(len(group) for group in shared))
        for (level, kind, size), shared in sorted(groups.items())
    )


def efficient_cpus(files: SystemFiles, cpus: tuple[int, ...]) -> frozenset[int] | None:
    """Logical CPUs of the slower kind; ``None`` when all are alike.

    Intel's hybrid processors have a performance counter device for each kind; Arm's have a relative capacity.
    """
    atoms = parse_cpu_list(files.text("/sys/devices/cpu_atom/cpus"))
    if atoms and parse_cpu_list(files.text("/sys/devices/cpu_core/cpus")):
        slow = frozenset(atoms).intersection(cpus)
    else:
        capacities = {cpu: files.number(f"{SYSFS}/cpu{cpu}/cpu_capacity") for cpu in cpus}
        known = {cpu: value for cpu, value in capacities.items() if value is not None and value > 0}
        if len(known) != len(cpus) or not known:
            return None
        fastest = max(known.values())
        # Cores of one kind may differ a little by favoured-core ratings; half the speed is another kind.
        slow = frozenset(cpu for cpu, value in known.items() if value * 10 < fastest * 7)
    return slow if slow and len(slow) < len(cpus) else None
