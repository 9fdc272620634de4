"""A machine from a few words: the files of ``/proc`` and ``/sys`` and the GPU document that it would have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kt_tui.hardware.files import format_cpu_list

GIB = 1 << 30
X86 = "fpu sse4_2 avx f16c fma avx2 bmi2"
AVX512 = f"{X86} avx512f avx512dq avx512cd avx512bw avx512vl avx512_vnni avx512vbmi avx512_vbmi2 avx512_bf16"
AMX = f"{AVX512} avx_vnni avx512_fp16 amx_bf16 amx_tile amx_int8"
NEOVERSE_V2 = "fp asimd evtstrm aes atomics fphp asimdhp asimddp asimdfhm sve sve2 svebf16 svei8mm i8mm bf16"


@dataclass(frozen=True)
class Described:
    """What a machine is. Sizes are bytes; second SMT siblings are numbered after all first ones, as Linux does."""

    model: str
    flags: str
    sockets: int
    cores: int  # of one socket
    threads: int
    memory: int
    free: int
    vendor: str = "GenuineIntel"
    arch: str = "x86_64"
    memory_nodes: tuple[int, ...] = ()  # sizes of nodes without CPUs
    l2: int = 1 << 20
    l3: int = 32 << 20
    l3_cores: int = 8
    shm: str = "size=50%"
    swap: int = 0
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def total_cores(self) -> int:
        """Cores of all sockets."""
        return self.sockets * self.cores

    def siblings(self, core: int) -> tuple[int, ...]:
        """Logical CPUs of a core."""
        return tuple(core + thread * self.total_cores for thread in range(self.threads))


def machine_files(it: Described) -> dict[str, str]:
    """The files by path."""
    files: dict[str, str] = {
        "/proc/sys/kernel/arch": f"{it.arch}\n",
        "/proc/sys/kernel/osrelease": "6.8.0-60-generic\n",
        "/proc/self/cgroup": "0::/user.slice/user-1000.slice/session-4.scope\n",
        "/proc/self/status": _status(it),
        "/proc/self/limits": "Limit                     Soft Limit           Hard Limit           Units     \n"
        f"Max locked memory         {it.memory // 8:<20} {it.memory // 8:<20} bytes     \n"
        "Max open files            1024                 1048576              files     \n",
        "/proc/self/mountinfo": "31 24 0:27 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
        f"28 25 0:24 / /dev/shm rw,nosuid,nodev shared:4 - tmpfs tmpfs rw,{it.shm},inode64\n"
        "30 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n",
        "/proc/sys/kernel/numa_balancing": "1\n" if it.sockets > 1 else "0\n",
        "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "/proc/meminfo": _meminfo(it.memory + sum(it.memory_nodes), it.free + sum(it.memory_nodes), it.swap),
        "/sys/devices/system/cpu/online": f"0-{it.total_cores * it.threads - 1}\n",
    }
    files["/proc/cpuinfo"] = "\n".join(_block(it, cpu) for cpu in range(it.total_cores * it.threads))
    for core in range(it.total_cores):
        for cpu in it.siblings(core):
            files |= _topology(it, core, cpu)
    count = it.sockets + len(it.memory_nodes)
    files["/sys/devices/system/node/online"] = f"0-{count - 1}\n" if count > 1 else "0\n"
    for node in range(count):
        folder = f"/sys/devices/system/node/node{node}"
        own = [c for c in range(it.total_cores) if c // it.cores == node]
        cpus = tuple(sorted(cpu for core in own for cpu in it.siblings(core)))
        size = it.memory // it.sockets if node < it.sockets else it.memory_nodes[node - it.sockets]
        left = it.free // it.sockets if node < it.sockets else size
        files[f"{folder}/cpulist"] = format_cpu_list(cpus) + "\n"
        files[f"{folder}/meminfo"] = (
            f"Node {node} MemTotal: {size // 1024} kB\nNode {node} MemFree: {left // 1024} kB\n"
        )
        near = ["10" if other == node else "32" for other in range(count)]
        files[f"{folder}/distance"] = " ".join(near) + "\n"
    return {**files, **it.extra}


def _block(it: Described, cpu: int) -> str:
    if it.arch == "aarch64":
        return (
            f"processor\t: {cpu}\nBogoMIPS\t: 2000.00\nFeatures\t: {it.flags}\nCPU implementer\t: 0x41\n"
            "CPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0xd4f\nCPU revision\t: 0\n"
        )
    core = cpu % it.total_cores
    return (
        f"processor\t: {cpu}\nvendor_id\t: {it.vendor}\nmodel name\t: {it.model}\nphysical id\t: {core // it.cores}\n"
        f"siblings\t: {it.cores * it.threads}\ncore id\t\t: {core % it.cores}\ncpu cores\t: {it.cores}\n"
        f"flags\t\t: {it.flags}\n"
    )


def _topology(it: Described, core: int, cpu: int) -> dict[str, str]:
    folder = f"/sys/devices/system/cpu/cpu{cpu}"
    first = core // it.l3_cores * it.l3_cores
    group = range(first, min(first + it.l3_cores, it.total_cores))
    shared = tuple(sorted(c for near in group for c in it.siblings(near)))
    own = format_cpu_list(it.siblings(core))
    files = {
        f"{folder}/topology/physical_package_id": f"{core // it.cores}\n",
        f"{folder}/topology/core_id": f"{core % it.cores}\n",
        f"{folder}/topology/core_cpus_list": own + "\n",
    }
    caches = (
        (1, "Data", 48 << 10, own),
        (2, "Unified", it.l2, own),
        (3, "Unified", it.l3, format_cpu_list(shared)),
    )
    for number, (level, kind, size, cpus) in enumerate(caches):
        cache = f"{folder}/cache/index{number}"
        files[f"{cache}/level"] = f"{level}\n"
        files[f"{cache}/type"] = f"{kind}\n"
        files[f"{cache}/size"] = f"{size // 1024}K\n"
        files[f"{cache}/shared_cpu_list"] = cpus + "\n"
    return files


def _status(it: Described) -> str:
    nodes = it.sockets + len(it.memory_nodes)
    return (
        f"Name:\tpython\nCpus_allowed_list:\t0-{it.total_cores * it.threads - 1}\n"
        f"Mems_allowed_list:\t{format_cpu_list(tuple(range(nodes)))}\nSeccomp:\t0\n"
    )


def _meminfo(total: int, free: int, swap: int) -> str:
    cached = 6 * GIB
    values = {
        "MemTotal": total, "MemFree": free, "MemAvailable": free + cached - GIB, "Buffers": GIB // 4, "Cached": cached,
        "SwapCached": 0, "AnonPages": max(total - free - cached, 0) // 2, "Shmem": GIB // 8, "SReclaimable": GIB // 2,
        "SwapTotal": swap, "SwapFree": swap,
    }  # fmt: skip
    text = "".join(f"{name + ':':<16}{value // 1024:>12} kB\n" for name, value in values.items())
    return (
        text
        + "HugePages_Total:       0\nHugePages_Free:        0\nHugepagesize:       2048 kB\nHugetlb:  0 kB\n"
    )


def gpu_row(
    index: int, name: str, total: int, capability: tuple[int, int], node: int, **more: Any
) -> dict[str, Any]:
    """One idle GPU as NVML describes it."""
    reserved = total // 50
    return {
        "index": index,
        "uuid": f"GPU-{index:08x}-5eed-4a11-8a11-{0xC0FFEE + index:012x}",
        "pci_bus_id": f"00000000:{0x01 + 0x40 * index:02X}:00.0",
        "name": name,
        "memory": {
            "total": total,
            "reserved": reserved,
            "free": total - reserved - (2 << 20),
            "used": 2 << 20,
        },
        "utilization": {"gpu": 0, "memory": 0},
        "power_w": 22.0,
        "power_limit_w": 450.0,
        "temperature_c": 34,
        "pcie": {"gen": 1, "width": 16, "max_gen": 5, "max_width": 16},
        "compute_capability": list(capability),
        "numa_node": node,
        "mig": {"error": "NOT_SUPPORTED"},
        "processes": [],
    } | more


def gpu_document(*rows: dict[str, Any], **env: str) -> dict[str, Any]:
    """A GPU document of a driver that works."""
    return {"driver": {"version": "580.95.05", "cuda": "13.0"}, "env": env, "gpus": list(rows)}


def write_files(root: Path, files: Mapping[str, str]) -> Path:
    """Write files (path -> text) below ``root``."""
    (root / "proc").mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
    return root
