"""What the system lets this process have: ulimits, shared memory, affinity, control groups."""

from __future__ import annotations

import re

from kt_tui.hardware.files import SystemFiles, parse_cpu_list, whole_number
from kt_tui.hardware.machine import ControlGroup, Limits, ResourceLimit

SUFFIXES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def parse_limits(text: str | None) -> dict[str, ResourceLimit]:
    """``/proc/self/limits`` by name (``Max open files``)."""
    found = {}
    for line in (text or "").splitlines():
        match = re.match(r"(Max [a-z ]+?)\s{2,}(unlimited|\d+)\s+(unlimited|\d+)(\s|$)", line)
        if match:
            found[match[1]] = ResourceLimit(whole_number(match[2]), whole_number(match[3]))
    return found


def parse_status(text: str | None) -> dict[str, str]:
    """``/proc/self/status`` by name."""
    pairs = (line.partition(":") for line in (text or "").splitlines())
    return {name: value.strip() for name, separator, value in pairs if separator}


def parse_shm_size(mountinfo: str | None) -> int | str | None:
    """Size of ``/dev/shm`` by its mount options: bytes, ``50%``-like text, ``""`` for the default, or ``None``."""
    size: int | str | None = None
    for line in (mountinfo or "").splitlines():
        before, separator, after = line.partition(" - ")
        fields, tail = before.split(), after.split()
        if not separator or len(fields) < 5 or fields[4] != "/dev/shm" or len(tail) < 3:  # noqa: S108 (a mount)
            continue
        option = re.search(r"(?:^|,)size=(\d{1,19})([kmgKMG%]?)(?:,|$)", tail[2])
        if option is None:
            size = ""
        elif option[2] == "%":
            size = f"{option[1]}%"
        else:
            size = int(option[1]) * SUFFIXES[option[2].lower()]
    return size


def read_limits(
    files: SystemFiles, group: ControlGroup, memory_total: int | None, notes: list[str]
) -> Limits:
    """Read the limits; what is missing is ``None`` with a note."""
    status = parse_status(files.text("/proc/self/status"))
    resources = parse_limits(files.text("/proc/self/limits"))
    shm = parse_shm_size(files.text("/proc/self/mountinfo"))
    if shm is None:
        notes.append("limits: /dev/shm size n/a, it is not among the mounts")
    elif isinstance(shm, str):  # tmpfs without a size option holds half of memory (the kernel's tmpfs.rst)
        percent = int(shm[:-1]) if shm else 50
        shm = None if memory_total is None else memory_total * percent // 100
    affinity = parse_cpu_list(status.get("Cpus_allowed_list")) or None
    for name, value in (
        ("affinity", affinity),
        ("open files", resources.get("Max open files")),
        ("locked memory", resources.get("Max locked memory")),
    ):
        if value is None:
            notes.append(f"limits: {name} n/a, not listed for this process")
    return Limits(
        nofile=resources.get("Max open files"),
        memlock=resources.get("Max locked memory"),
        address_space=resources.get("Max address space"),
        shm_size=shm,
        affinity=affinity,
        memory_nodes=parse_cpu_list(status.get("Mems_allowed_list")) or None,
        cgroup=group,
    )
