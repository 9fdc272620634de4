"""NUMA nodes: their CPUs, memory and distances, and which of them this process may use."""

from __future__ import annotations

import ctypes
import errno
import platform
import re
from dataclasses import replace

from kt_tui.hardware.files import SystemFiles, parse_cpu_list, whole_number
from kt_tui.hardware.machine import Cpu, Gpu, Limits, Memory, Numa, NumaNode
from kt_tui.hardware.memory import parse_meminfo

SYSFS = "/sys/devices/system/node"
SYS_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
NO_SUCH_POLICY = 0x3FFF


def read_numa(files: SystemFiles, cpu: Cpu, memory: Memory, limits: Limits, notes: list[str]) -> Numa:
    """Read the nodes; without any in sysfs the machine is one node with everything."""
    mode = files.number("/proc/sys/kernel/numa_balancing")
    balancing = None if mode is None else mode != 0
    allowed_policy = policy_permission() if files.live else None
    if balancing is None:
        notes.append("numa: automatic balancing n/a, /proc/sys/kernel/numa_balancing is missing")
    if allowed_policy is None:
        notes.append(
            "numa: whether memory may be bound to nodes is not known; it can only be asked on the machine"
        )
    online = parse_cpu_list(files.text(f"{SYSFS}/online"))
    present = {
        int(match[1]) for name in files.names(SYSFS) if (match := re.fullmatch(r"node(\d{1,6})", name))
    }
    ids = sorted(present.intersection(online) if online else present)
    if not ids:
        notes.append("numa: no nodes in /sys/devices/system/node; the machine is shown as a single node")
        everything = tuple(sorted(number for core in cpu.cores for number in core.cpus))
        node = NumaNode(0, everything, memory.total, memory.free, usable_cpus=cpu.usable_cpus)
        return Numa((node,), True, balancing, allowed_policy)
    allowed = limits.memory_nodes if limits.memory_nodes is not None else limits.cgroup.memory_nodes
    nodes = tuple(_node(files, number, cpu, allowed, notes) for number in ids)
    return Numa(nodes, False, balancing, allowed_policy)


def mark_gpu_memory(numa: Numa, gpus: tuple[Gpu, ...], notes: list[str]) -> Numa:
    """The nodes, those that are a GPU's own memory (on Grace) marked as such: nothing of the host belongs there."""
    sizes = [gpu.memory_total for gpu in gpus if gpu.memory_total]
    nodes = []
    for node in numa.nodes:
        near = [s for s in sizes if node.memory_total and abs(s - node.memory_total) * 10 < s]
        if node.kind == "memory only" and near:
            sizes.remove(near[0])
            notes.append(f"numa: node {node.id} is a GPU's own memory; it does not count as main memory")
            nodes.append(replace(node, kind="gpu memory", usable=False, reason="a GPU's own memory"))
        else:
            nodes.append(node)
    return replace(numa, nodes=tuple(nodes))


def without_gpu_memory(files: SystemFiles, memory: Memory, numa: Numa) -> Memory:
    """Main memory less what the kernel counts of the GPUs' own."""
    for node in numa.nodes:
        if node.kind != "gpu memory":
            continue
        info = parse_meminfo(files.text(f"{SYSFS}/node{node.id}/meminfo"))
        total, free = info.get("MemTotal", 0), info.get("MemFree", 0)
        host = _less(memory.available_host, free)
        bounded = host if memory.available == memory.available_host else memory.available
        memory = replace(
            memory,
            total=_less(memory.total, total),
            free=_less(memory.free, free),
            used=_less(memory.used, total - free),
            available=bounded if host is None or bounded is None else min(bounded, host),
            available_host=host,
        )
    return memory


def _less(value: int | None, part: int) -> int | None:
    return None if value is None else max(0, value - part)


def policy_permission() -> bool | None:
    """Whether this process may set memory policies; ``None`` where one cannot ask.

    Asks for a policy that does not exist: a kernel that would have set it answers "invalid", a container's filter
    of system calls (or a kernel without NUMA) answers something else. Nothing changes either way.
    """
    number = SYS_SET_MEMPOLICY.get(platform.machine())
    if platform.system() != "Linux" or number is None:
        return None
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.syscall(number, NO_SUCH_POLICY, None, 0)
        return ctypes.get_errno() == errno.EINVAL
    except (OSError, AttributeError):
        return None


def _node(
    files: SystemFiles, number: int, cpu: Cpu, allowed: tuple[int, ...] | None, notes: list[str]
) -> NumaNode:
    folder = f"{SYSFS}/node{number}"
    cpus = parse_cpu_list(files.text(f"{folder}/cpulist"))
    if cpus is None:
        notes.append(f"numa: node {number}: CPUs n/a, its cpulist is missing or damaged")
        cpus = ()
    info = parse_meminfo(files.text(f"{folder}/meminfo"))
    total = info.get("MemTotal")
    if total is None:
        notes.append(f"numa: node {number}: memory n/a, its meminfo is missing or damaged")
    usable_cpus = tuple(sorted(set(cpus).intersection(cpu.usable_cpus)))
    kind = "cpu+memory" if cpus and total != 0 else "cpu only" if cpus else "memory only"
    reason = None
    if cpus and not usable_cpus:
        reason = "CPUs not allowed by cpuset or affinity"
    elif allowed is not None and number not in allowed:
        reason = "memory not allowed by cpuset"
    if kind == "memory only":
        notes.append(f"numa: node {number} is memory only; it gets no thread pool")
    distances = [whole_number(field) for field in (files.text(f"{folder}/distance") or "").split()]
    return NumaNode(
        id=number,
        cpus=cpus,
        memory_total=total,
        memory_free=info.get("MemFree"),
        usable=reason is None,
        reason=reason,
        kind=kind,
        usable_cpus=usable_cpus,
        distances=tuple(distance for distance in distances if distance is not None),
    )
